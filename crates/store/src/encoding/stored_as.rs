//! Conversions between domain types and the storage proto: one trait, its implementations for simple values, and macros
//! that write both directions from one list.
//!
//! Both directions name every field or variant. So the compiler rejects a field or a variant that is missing from its
//! list. Types whose stored form differs more, such as lists in columns, implement [`StoredAs`] by hand.
//!
//! The macros use `StoredAs`, `DecodeError` and `v1` of the module that calls them.

use std::sync::Arc;

use bytes::Bytes;
use palimpsest_core::event::ForkPoint;
use palimpsest_core::ids::{
    CallKey, CompactionKey, Epoch, MessageId, Ordinal, PersistDecisionKey, Revision, SessionKey,
    SpanKey, Timestamp, TurnNumber,
};
use palimpsest_core::message::Digest;
use uuid::Uuid;

use super::error::{DecodeError, split_ids};
use super::v1;

/// A domain type that is stored as `P`, a type of the storage proto.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored as `{P}`",
    label = "the list of a `stored_struct!` or `stored_enum!` needs this conversion",
    note = "list the fields of `{Self}` in a `stored_struct!`, or implement `StoredAs<{P}>` by hand"
)]
pub(super) trait StoredAs<P>: Sized {
    fn to_proto(&self) -> P;
    fn from_proto(stored: P) -> Result<Self, DecodeError>;
}

/// Stores a struct as a message of the proto. Every field of both is listed once.
///
/// ```text
/// stored_struct! {
///     CompactionFinished = Compacted { key, strategy, leaving }    // fields with one name, in any order
///     renamed { trigger = asked, at = at_ms }                      // domain field = proto field
///     inlined { usage: Usage { input_tokens, output_tokens } }     // inner struct without a message of its own
///     paired { blocks = block_of + blocks }                        // list of pairs, stored as two columns
///     or default                                                   // see `nested!`
/// }
/// ```
macro_rules! stored_struct {
    (
        $domain:ident = $proto:ident { $($field:ident),* $(,)? }
        $(renamed { $($name:ident = $stored_name:ident),* $(,)? })?
        $(inlined { $($part:ident: $inner:ident { $($item:ident),* $(,)? }),* $(,)? })?
        $(paired { $($pairs:ident = $first:ident + $second:ident),* $(,)? })?
        $(or $absent:tt)?
    ) => {
        impl StoredAs<v1::$proto> for $domain {
            fn to_proto(&self) -> v1::$proto {
                v1::$proto {
                    $($field: StoredAs::to_proto(&self.$field),)*
                    $($($stored_name: StoredAs::to_proto(&self.$name),)*)?
                    $($($($item: StoredAs::to_proto(&self.$part.$item),)*)*)?
                    $($(
                        $first: self.$pairs.iter().map(|(first, _)| StoredAs::to_proto(first)).collect(),
                        $second: self.$pairs.iter().map(|(_, second)| StoredAs::to_proto(second)).collect(),
                    )*)?
                }
            }

            fn from_proto(stored: v1::$proto) -> Result<Self, DecodeError> {
                Ok(Self {
                    $($field: StoredAs::from_proto(stored.$field)?,)*
                    $($($name: StoredAs::from_proto(stored.$stored_name)?,)*)?
                    $($($part: $inner { $($item: StoredAs::from_proto(stored.$item)?,)* },)*)?
                    $($($pairs: $crate::encoding::stored_as::pairs(stored.$first, stored.$second)?,)*)?
                })
            }
        }

        $(nested! { $domain = $proto or $absent })?
    };
}

/// Stores a domain type in a message field that is always written. In prost, every message field is an `Option`.
///
/// `or default` reads an absent message as an empty one, because older records may lack it. `or "damage"` rejects the
/// record instead.
macro_rules! nested {
    ($domain:ty = $proto:ident or default) => {
        impl StoredAs<Option<v1::$proto>> for $domain {
            fn to_proto(&self) -> Option<v1::$proto> {
                Some(self.to_proto())
            }

            fn from_proto(stored: Option<v1::$proto>) -> Result<Self, DecodeError> {
                Self::from_proto(stored.unwrap_or_default())
            }
        }
    };
    ($domain:ty = $proto:ident or $absent:literal) => {
        impl StoredAs<Option<v1::$proto>> for $domain {
            fn to_proto(&self) -> Option<v1::$proto> {
                Some(self.to_proto())
            }

            fn from_proto(stored: Option<v1::$proto>) -> Result<Self, DecodeError> {
                Self::from_proto(stored.ok_or(DecodeError::Damaged($absent))?)
            }
        }
    };
}

/// Stores an enum without data as the number of a variant of the proto. Every variant of both is listed once.
///
/// ```text
/// stored_enum! {
///     Provider = Provider { Anthropic, OpenAi = Openai }    // variants; `=` if the proto has another name
///     or "an unknown provider"                              // an unspecified number is damage
/// }
/// ```
///
/// `or Variant` reads an unspecified number as that variant. Without `or`, the list maps `Unspecified` itself. A number
/// that this release does not know is read as unspecified, as prost does.
macro_rules! stored_enum {
    (
        $domain:ident = $proto:ident { $($variant:ident $(= $stored:ident)?),* $(,)? }
        $(or $unspecified:tt)?
    ) => {
        impl StoredAs<i32> for $domain {
            fn to_proto(&self) -> i32 {
                let stored = match self {
                    $(Self::$variant => stored_variant!($proto $variant $($stored)?),)*
                };
                stored.into()
            }

            fn from_proto(stored: i32) -> Result<Self, DecodeError> {
                match v1::$proto::try_from(stored).unwrap_or_default() {
                    $(stored_variant!($proto $variant $($stored)?) => Ok(Self::$variant),)*
                    $(v1::$proto::Unspecified => unspecified!($unspecified),)?
                }
            }
        }
    };
}

/// The proto's variant of a line of `stored_enum!`: the second name, or else the only one.
macro_rules! stored_variant {
    ($proto:ident $variant:ident) => {
        v1::$proto::$variant
    };
    ($proto:ident $variant:ident $stored:ident) => {
        v1::$proto::$stored
    };
}

/// The meaning of an unspecified number in `stored_enum!`.
macro_rules! unspecified {
    ($damage:literal) => {
        Err(DecodeError::Damaged($damage))
    };
    ($variant:ident) => {
        Ok(Self::$variant)
    };
}

impl<P, T: StoredAs<P>> StoredAs<Option<P>> for Option<T> {
    fn to_proto(&self) -> Option<P> {
        self.as_ref().map(T::to_proto)
    }

    fn from_proto(stored: Option<P>) -> Result<Self, DecodeError> {
        stored.map(T::from_proto).transpose()
    }
}

impl<P, T: StoredAs<P>> StoredAs<Vec<P>> for Vec<T> {
    fn to_proto(&self) -> Vec<P> {
        self.iter().map(T::to_proto).collect()
    }

    fn from_proto(stored: Vec<P>) -> Result<Self, DecodeError> {
        stored.into_iter().map(T::from_proto).collect()
    }
}

/// Stores scalars as themselves.
macro_rules! stored_as_itself {
    ($($scalar:ty),*) => {$(
        impl StoredAs<$scalar> for $scalar {
            fn to_proto(&self) -> $scalar {
                *self
            }

            fn from_proto(stored: $scalar) -> Result<Self, DecodeError> {
                Ok(stored)
            }
        }
    )*};
}

stored_as_itself!(bool, i32, u32, u64);

/// Stores newtypes as their number.
macro_rules! stored_as_number {
    ($($domain:ident($number:ty): $new:ident, $get:ident;)*) => {$(
        impl StoredAs<$number> for $domain {
            fn to_proto(&self) -> $number {
                self.$get()
            }

            fn from_proto(stored: $number) -> Result<Self, DecodeError> {
                Ok(Self::$new(stored))
            }
        }
    )*};
}

stored_as_number! {
    CallKey(u32): new, get;
    CompactionKey(u32): new, get;
    Epoch(u32): new, get;
    Ordinal(u32): new, get;
    PersistDecisionKey(u32): new, get;
    Revision(u64): new, get;
    SpanKey(u32): new, get;
    Timestamp(i64): from_millis, as_millis;
}

impl StoredAs<u32> for TurnNumber {
    fn to_proto(&self) -> u32 {
        self.get()
    }

    fn from_proto(stored: u32) -> Result<Self, DecodeError> {
        Self::new(stored).ok_or(DecodeError::Damaged("a turn with the number zero"))
    }
}

/// The index of a block, or a small count.
impl StoredAs<u32> for u16 {
    fn to_proto(&self) -> u32 {
        (*self).into()
    }

    fn from_proto(stored: u32) -> Result<Self, DecodeError> {
        Self::try_from(stored)
            .map_err(|_| DecodeError::Damaged("the index of a block is too large"))
    }
}

impl StoredAs<String> for Box<str> {
    fn to_proto(&self) -> String {
        self.to_string()
    }

    fn from_proto(stored: String) -> Result<Self, DecodeError> {
        Ok(stored.into())
    }
}

impl StoredAs<String> for Arc<str> {
    fn to_proto(&self) -> String {
        self.to_string()
    }

    fn from_proto(stored: String) -> Result<Self, DecodeError> {
        Ok(stored.into())
    }
}

/// A parent session. Stored as an empty text if there is none.
impl StoredAs<String> for Option<SessionKey> {
    fn to_proto(&self) -> String {
        self.as_ref().map(SessionKey::to_string).unwrap_or_default()
    }

    fn from_proto(stored: String) -> Result<Self, DecodeError> {
        if stored.is_empty() {
            return Ok(None);
        }
        SessionKey::parse(&stored)
            .map(Some)
            .map_err(|_| DecodeError::Damaged("the name of a parent session is invalid"))
    }
}

impl StoredAs<v1::ForkPoint> for ForkPoint {
    fn to_proto(&self) -> v1::ForkPoint {
        v1::ForkPoint {
            session: self.session.to_string(),
            message: self.message.to_proto(),
            turn_offset: self.turn_offset,
        }
    }

    fn from_proto(stored: v1::ForkPoint) -> Result<Self, DecodeError> {
        let session = SessionKey::parse(&stored.session);
        Ok(Self {
            session: session.map_err(|_| {
                DecodeError::Damaged("the name of the session before a fork is invalid")
            })?,
            message: StoredAs::from_proto(stored.message)?,
            turn_offset: stored.turn_offset,
        })
    }
}

impl<const N: usize> StoredAs<Bytes> for [u8; N] {
    fn to_proto(&self) -> Bytes {
        Bytes::copy_from_slice(self)
    }

    fn from_proto(stored: Bytes) -> Result<Self, DecodeError> {
        (*stored)
            .try_into()
            .map_err(|_| DecodeError::Damaged("an id or a digest is cut"))
    }
}

impl StoredAs<Bytes> for Digest {
    fn to_proto(&self) -> Bytes {
        self.as_bytes().to_proto()
    }

    fn from_proto(stored: Bytes) -> Result<Self, DecodeError> {
        StoredAs::from_proto(stored).map(Self::from_bytes)
    }
}

impl StoredAs<Bytes> for MessageId {
    fn to_proto(&self) -> Bytes {
        self.get().as_bytes().to_proto()
    }

    fn from_proto(stored: Bytes) -> Result<Self, DecodeError> {
        let bytes = StoredAs::from_proto(stored)?;
        Ok(Self::new(Uuid::from_bytes(bytes)))
    }
}

/// An optional message id. Stored as no bytes if there is none.
impl StoredAs<Bytes> for Option<MessageId> {
    fn to_proto(&self) -> Bytes {
        self.as_ref().map(MessageId::to_proto).unwrap_or_default()
    }

    fn from_proto(stored: Bytes) -> Result<Self, DecodeError> {
        if stored.is_empty() {
            return Ok(None);
        }
        MessageId::from_proto(stored).map(Some)
    }
}

/// A list of ids. Stored as one byte string, which is smaller than one field per id.
impl StoredAs<Bytes> for Vec<MessageId> {
    fn to_proto(&self) -> Bytes {
        let ids = self.iter().flat_map(|id| *id.get().as_bytes());
        ids.collect::<Vec<u8>>().into()
    }

    fn from_proto(stored: Bytes) -> Result<Self, DecodeError> {
        let ids = split_ids(&stored)?.into_iter();
        Ok(ids.map(|id| MessageId::new(Uuid::from_bytes(id))).collect())
    }
}

/// Decodes a list of pairs from two columns.
pub(super) fn pairs<A, B, P, Q>(first: Vec<P>, second: Vec<Q>) -> Result<Vec<(A, B)>, DecodeError>
where
    A: StoredAs<P>,
    B: StoredAs<Q>,
{
    if first.len() != second.len() {
        return Err(DecodeError::Damaged(
            "the columns of a list differ in length",
        ));
    }
    let pairs = first.into_iter().zip(second);
    pairs
        .map(|(first, second)| Ok((A::from_proto(first)?, B::from_proto(second)?)))
        .collect()
}

/// Decodes one cell of a list that is stored as columns.
pub(super) fn cell<T: StoredAs<P>, P: Clone>(column: &[P], row: usize) -> Result<T, DecodeError> {
    let stored = column
        .get(row)
        .ok_or(DecodeError::Damaged("a column of a list is cut"))?;
    T::from_proto(stored.clone())
}
