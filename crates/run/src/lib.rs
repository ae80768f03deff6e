pub mod spool;
pub mod transcript;
