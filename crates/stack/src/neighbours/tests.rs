//! Conversations, to come.
