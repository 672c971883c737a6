//! JSON in place of the binary form of the contract's messages, in both directions and without decoding them.
//!
//! `read` turns a JSON text into the binary form, and `write` turns the binary form into a JSON text. Both follow
//! `schema`, which is compiled from the descriptors of the contract.

mod read;
mod scalar;
mod schema;
mod well_known;
mod write;

pub(crate) use read::{JsonError, read, read_without};
pub(crate) use scalar::put_bytes;
pub(crate) use schema::{
    Cardinality, Field, Form, Kind, MessageIndex, Schema, SchemaError, enum_prefix, is_left_out,
    shown_enum_name,
};
pub(crate) use well_known::WellKnown;
pub(crate) use write::write;
