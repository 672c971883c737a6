//! Generated code of the public contract.
