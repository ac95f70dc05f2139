//! Rules for English text, shared by the tests of pages and of comments.

/// Phrases that stand neither in a page nor in a comment, in whole words.
const NEVER: [&str; 12] = [
    "has to be", "have to be", "had to be", "what adds to", "units of others", "way back in",
    "mend", "settle", "spared", "legible", "by chance", "mixes",
];

/// Words that may follow a genitive only if no noun does: `a job of Slurm's that runs`.
const NO_NOUNS: [&str; 32] = [
    "that", "which", "who", "is", "are", "was", "were", "has", "have", "in", "on", "at", "to",
    "by", "with", "as", "for", "from", "than", "but", "not", "may", "can", "cannot", "must",
    "will", "if", "when", "where", "while", "it", "they",
];

/// Words that begin a relative clause to no noun: `What it opens is a device.`
const RELATIVES: [&str; 4] = ["What", "Who", "Whatever", "Whoever"];

/// Returns a text without the insides of its code spans.
pub(crate) fn without_code(text: &str) -> String {
    let mut prose = String::new();
    for (index, part) in text.split('`').enumerate() {
        prose.push_str(if index % 2 == 0 { part } else { "`code`" });
    }
    prose
}

/// Splits a paragraph into sentences, and these into words.
pub(crate) fn sentences(paragraph: &str) -> Vec<Vec<&str>> {
    let mut words = paragraph.split_whitespace().peekable();
    let (mut sentences, mut sentence) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        sentence.push(word);
        let ends = word.trim_end_matches([')', '"', '*', '`', '_']).ends_with(['.', '!', '?']);
        let begins = |next: &&str| {
            next.starts_with(|c: char| {
                c.is_uppercase() || c.is_ascii_digit() || "`[*(\"_".contains(c)
            })
        };
        if words.peek().is_none_or(|next| ends && begins(next)) {
            sentences.push(std::mem::take(&mut sentence));
        }
    }
    sentences
}

/// Returns the first sentence that begins with a relative clause to no noun.
pub(crate) fn headless(text: &str) -> Option<String> {
    let statement = |words: &Vec<&str>| {
        RELATIVES.contains(&words[0]) && words[words.len() - 1].trim_end_matches(')').ends_with('.')
    };
    sentences(text).into_iter().find(statement).map(|words| words.join(" "))
}

/// Returns the first "of Slurm's" with no noun behind it, or "of theirs".
pub(crate) fn double_genitive(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    for (index, word) in words.iter().enumerate() {
        let bare = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '\'');
        let own = ["ours", "theirs", "yours", "hers", "mine"].contains(&bare);
        let owner = own || bare.ends_with("'s") || bare.ends_with("s'");
        let of = (1..=2).any(|back| index >= back && words[index - back] == "of");
        let next = words.get(index + 1).map(|next| next.trim_end_matches([',', '.', ';', ':']));
        let alone = own || bare != *word || next.is_none_or(|next| NO_NOUNS.contains(&next));
        if owner && of && alone {
            return Some(words[index.saturating_sub(2)..=index].join(" "));
        }
    }
    None
}

/// Lists the forbidden phrases of a text, in any case.
pub(crate) fn phrases(text: &str) -> Vec<&'static str> {
    phrases_of(text, &NEVER)
}

/// Lists the phrases of a list that a text has, in any case.
pub(crate) fn phrases_of<'a>(text: &str, list: &[&'a str]) -> Vec<&'a str> {
    let plain: String =
        text.to_lowercase().chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    list.iter().copied().filter(|phrase| plain.contains(&format!(" {phrase} "))).collect()
}

/// Describes every breach of the rules in a text.
pub(crate) fn breaches(text: &str) -> Vec<String> {
    let text = without_code(text);
    let mut found: Vec<String> =
        phrases(&text).iter().map(|phrase| format!("\"{phrase}\"")).collect();
    if let Some(words) = double_genitive(&text) {
        found.push(format!("\"{words}\" has two genitives"));
    }
    if let Some(sentence) = headless(&text) {
        found.push(format!("\"{sentence}\" begins with a clause to no noun"));
    }
    found
}
