//! The two grammars, key by key, and every error with file and line.
