//! Random worlds: stacks, networks between them, faults, applications, and observers that know the rules.

pub mod random;
