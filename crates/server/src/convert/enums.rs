//! Conversions of enums without data between the domain and the contract.
//!
//! Both kinds of types belong to other crates, so `From` cannot be implemented here. [`convert_enum!`] writes functions
//! instead. Each match is exhaustive, so the compiler rejects a variant that is missing from its list.

/// Writes the conversion of an enum to the contract, or the conversions of both directions.
///
/// ```text
/// convert_enum! {
///     /// Converts the author of a version.
///     pub(super) fn source(Author) -> v1::MemorySource {
///         Template, Model, Extractive, Person = Edited,    // variants; `=` if the contract has another name
///     }
/// }
/// convert_enum! {
///     fn export_note_kind(NoteKind) -> v1::NoteKind { Decision, Constraint, KnownIssue }
///     fn note_kind: unspecified => missing                 // or `unspecified => Variant`
/// }
/// ```
///
/// The inward function takes the number and the field's path for errors. A number that the contract does not have is an
/// error.
macro_rules! convert_enum {
    (
        $(#[$doc:meta])*
        $vis:vis fn $export:ident($domain:ident) -> v1::$contract:ident {
            $($variant:ident $(= $name:ident)?),* $(,)?
        }
    ) => {
        $(#[$doc])*
        $vis const fn $export(value: $domain) -> v1::$contract {
            match value {
                $($domain::$variant => contract_variant!($contract $variant $($name)?),)*
            }
        }
    };
    (
        $(#[$doc:meta])*
        $vis:vis fn $export:ident($domain:ident) -> v1::$contract:ident {
            $($variant:ident $(= $name:ident)?),* $(,)?
        }
        fn $import:ident: unspecified => $unspecified:ident
    ) => {
        convert_enum! {
            $(#[$doc])*
            $vis fn $export($domain) -> v1::$contract { $($variant $(= $name)?),* }
        }

        fn $import(value: i32, field: &str) -> Result<$domain, FieldError> {
            match v1::$contract::try_from(value) {
                $(Ok(contract_variant!($contract $variant $($name)?)) => Ok($domain::$variant),)*
                Ok(v1::$contract::Unspecified) => unspecified!($domain $unspecified field),
                Err(_) => Err(unknown(field)),
            }
        }
    };
}

/// The contract's variant of a line of `convert_enum!`: the second name, or else the only one.
macro_rules! contract_variant {
    ($contract:ident $variant:ident) => {
        v1::$contract::$variant
    };
    ($contract:ident $variant:ident $name:ident) => {
        v1::$contract::$name
    };
}

/// The meaning of an unspecified number in `convert_enum!`.
macro_rules! unspecified {
    ($domain:ident missing $field:ident) => {
        Err(FieldError::missing($field))
    };
    ($domain:ident $variant:ident $field:ident) => {
        Ok($domain::$variant)
    };
}
