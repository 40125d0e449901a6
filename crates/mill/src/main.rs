//! `mill`: the millstream command.

#![forbid(unsafe_code)]
#![allow(dead_code)]

mod http;
mod limits;

fn main() {}
