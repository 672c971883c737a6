//! The items of a request, with their positions in its body.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    input: &'a RawValue,
}

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

/// The items of the array `input`.
#[derive(Debug)]
pub(crate) struct InputItems<'a> {
    body: &'a str,
    items: Vec<&'a RawValue>,
}

impl<'a> InputItems<'a> {
    /// Returns the items of a body. `None` if the body has no array `input`.
    pub(crate) fn of(body: &'a [u8]) -> Option<Self> {
        let body = std::str::from_utf8(body).ok()?;
        let input = serde_json::from_str::<Body<'_>>(body).ok()?.input;
        let items = serde_json::from_str(input.get()).ok()?;
        Some(Self { body, items })
    }

    /// Returns the JSON of the items, in order.
    pub(crate) fn all(&self) -> &[&'a RawValue] {
        &self.items
    }

    /// Returns the position of an item in the body.
    pub(super) fn place(&self, item: &RawValue) -> Range<usize> {
        // The items borrow from the body, so their addresses give their positions.
        let start = item.get().as_ptr().addr() - self.body.as_ptr().addr();
        start..start + item.get().len()
    }
}

/// Returns true if an item has the type.
pub(super) fn has_type(item: &RawValue, kind: &str) -> bool {
    let typed: Result<Typed<'_>, _> = serde_json::from_str(item.get());
    typed.is_ok_and(|typed| typed.kind.as_deref() == Some(kind))
}
