//! What is remembered?
