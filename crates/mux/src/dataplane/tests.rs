//! A whole data path in namespaces of its own: what is built, what the programs decide, what is left afterwards.
