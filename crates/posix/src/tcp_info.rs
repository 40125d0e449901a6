//! `struct tcp_info`.
