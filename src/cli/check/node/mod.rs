//! The node itself: kernel, mounts, users, guards.
