//! What the site has set up: PAM stacks, sshd, files, sources.
