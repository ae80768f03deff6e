pub mod keys;
pub mod names;
pub mod screen;
pub mod spool;
pub mod transcript;

mod utf8;
