//! Tests of whole ways, in and out.
