//! The names of things: projects, sessions, messages, calls, revisions, token counts.
//!
//! Each is a type of its own with a private field, checked where it is made, so that what holds one
//! need not check again. Not here: how ids are generated (the server does, with its clock).

use std::fmt;
use std::num::NonZeroU32;

use uuid::Uuid;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("must not be empty")]
    Empty,
    /// Too many characters.
    #[error("must have at most {max} characters, has {len}")]
    TooLong {
        /// The most that is allowed.
        max: usize,
        /// What was given.
        len: usize,
    },
    /// A character that may not stand there.
    #[error(
        "may hold only letters, digits, '-', '_' and '.', and must begin with a letter or a digit"
    )]
    Illegal,
    /// Not of the form `projects/{project}/sessions/{session}`.
    #[error("must have the form projects/{{project}}/sessions/{{session}}")]
    Form,
}

fn check_segment(text: &str, max: usize) -> Result<(), NameError> {
    let mut bytes = text.bytes();
    let first = bytes.next().ok_or(NameError::Empty)?;
    if text.len() > max {
        return Err(NameError::TooLong {
            max,
            len: text.len(),
        });
    }
    let legal = first.is_ascii_alphanumeric()
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if legal {
        Ok(())
    } else {
        Err(NameError::Illegal)
    }
}

macro_rules! segment {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// The most characters that one may have.
            pub const MAX_LEN: usize = $max;

            /// Checks a name. Because no name begins with a dot or holds a slash, one is always a
            /// safe part of a path.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check_segment(text, $max)?;
                Ok(Self(text.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

segment!(
    /// The tenant that a session belongs to.
    ProjectId,
    64
);
segment!(
    /// A session's name within its project, chosen by the caller.
    SessionId,
    128
);

/// A session's full name, `projects/{project}/sessions/{session}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The tenant.
    pub project: ProjectId,
    /// The name within it.
    pub session: SessionId,
}

impl SessionKey {
    /// Joins the two parts.
    pub fn new(project: ProjectId, session: SessionId) -> Self {
        Self { project, session }
    }

    /// Reads a resource name.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let (project, session) = name
            .strip_prefix("projects/")
            .and_then(|rest| rest.split_once("/sessions/"))
            .ok_or(NameError::Form)?;
        Ok(Self::new(
            ProjectId::new(project)?,
            SessionId::new(session)?,
        ))
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "projects/{}/sessions/{}", self.project, self.session)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// How many events a session's log holds: the revision after the first event is 1, and 0 means that
/// there is no session yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    /// Before the first event.
    pub const ZERO: Self = Self(0);

    /// A revision by its number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision after `events` more.
    #[must_use]
    pub const fn plus(self, events: u64) -> Self {
        Self(self.0 + events)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message's id. The server gives a version 7 UUID to a message that came without one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Uuid);

impl MessageId {
    /// Wraps a UUID.
    pub const fn new(id: Uuid) -> Self {
        Self(id)
    }

    /// Reads the usual form with hyphens, or without.
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }

    /// The UUID.
    pub const fn get(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in time: milliseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// So many milliseconds later.
    #[must_use]
    pub const fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add_unsigned(millis))
    }

    /// How many milliseconds lie between `earlier` and this; none when it is not earlier.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        let gap = self.0.saturating_sub(earlier.0);
        if gap > 0 { gap.unsigned_abs() } else { 0 }
    }
}

/// A message's place in its session: 0 is the first message ever appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ordinal(u32);

impl Ordinal {
    /// A place by its number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The same as an index into a slice.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Keys that are written as a prefix and a number, for people and for `Debug` alike.
macro_rules! written_as {
    ($key:ident, $prefix:literal) => {
        impl fmt::Display for $key {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $key {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

/// The number after a prefix, in its one spelling.
fn numbered(text: &str, prefix: &str) -> Option<u32> {
    let digits = text.strip_prefix(prefix)?;
    let canonical = digits == "0" || !digits.starts_with(['0', '+']);
    canonical.then(|| digits.parse().ok()).flatten()
}

/// A tool call's own key. Callers' ids repeat; this one does not: calls are numbered per session in
/// the order in which they arrive, and the key is written `c{number}`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey(u32);

impl CallKey {
    /// The call with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Reads the written form.
    pub fn parse(text: &str) -> Option<Self> {
        numbered(text, "c").map(Self)
    }
}

written_as!(CallKey, "c");

/// A span of messages for which a summary may stand. Spans are numbered per session in the order in
/// which they were chosen, and the key is written `span-{number}`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanKey(u32);

impl SpanKey {
    /// The span with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Reads the written form.
    pub fn parse(text: &str) -> Option<Self> {
        numbered(text, "span-").map(Self)
    }
}

written_as!(SpanKey, "span-");

/// The key of a result about which a caller has asked before its message came, written `o{number}`, so
/// that it is never the key of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersistDecisionKey(u32);

impl PersistDecisionKey {
    /// The offer with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

written_as!(PersistDecisionKey, "o");

/// A compaction of a session. Compactions are numbered per session, and the key is written
/// `compaction-{number}`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompactionKey(u32);

impl CompactionKey {
    /// The compaction with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Reads the written form.
    pub fn parse(text: &str) -> Option<Self> {
        numbered(text, "compaction-").map(Self)
    }
}

written_as!(CompactionKey, "compaction-");

/// A user turn of a session: what a person said, and everything up to what a person said next. Turns
/// are numbered from 1; how they are named for a model is the session's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnNumber(NonZeroU32);

impl TurnNumber {
    /// The turn with this number; there is no turn 0.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Its place among the turns, from 0.
    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// How many view-changing events a session has had. Within one epoch a view only grows at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(u32);

impl Epoch {
    /// An epoch by its number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Names and values of a caller, kept in their order.
pub type Attributes = Vec<(Box<str>, Box<str>)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["a", "A-1", "0.b_c", &"x".repeat(64)] {
            assert!(ProjectId::new(good).is_ok(), "{good}");
        }
        for bad in [
            "", ".", "..", ".a", "-a", "a/b", "a\\b", "a b", "ä", "a\0", "a%2f",
        ] {
            assert!(ProjectId::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            ProjectId::new(&"x".repeat(65)),
            Err(NameError::TooLong { max: 64, len: 65 })
        );
    }

    #[test]
    fn resource_names_are_read_back() {
        let key = SessionKey::parse("projects/p/sessions/s.1").unwrap();
        assert_eq!(key.to_string(), "projects/p/sessions/s.1");
        for bad in [
            "",
            "projects/p",
            "projects//sessions/s",
            "projects/p/sessions/",
            "projects/p/sessions/../x",
            "projects/p/sessions/s/sessions/t",
        ] {
            assert!(SessionKey::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn call_keys_have_one_spelling() {
        assert_eq!(CallKey::parse("c12"), Some(CallKey::new(12)));
        for bad in ["", "c", "12", "c01", "c+1", "c-1", "c99999999999"] {
            assert_eq!(CallKey::parse(bad), None, "{bad:?}");
        }
    }
}
