//! Why a stack is left as it is.

use helper::stack::StackError;

/// The reason why a stack cannot be changed safely, for the admin: it follows the path of the service's file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(String);

impl From<StackError> for Refusal {
    fn from(error: StackError) -> Self {
        Self(error.to_string())
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
