//! ECN on an established connection: the codepoints that leave, and the marks that arrive.

mod feedback;
