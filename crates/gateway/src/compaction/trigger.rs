//! The item at the end of a request that asks for a compaction in place of a response.

use palimpsest_engine::turn::JsonParts;

use super::input::{InputItems, has_type};
use crate::search::contains;

/// The type of the item.
const TYPE: &str = "compaction_trigger";

/// Returns true if a body can have a trigger.
pub(crate) fn has_trigger(body: &JsonParts) -> bool {
    contains(body.parts(), TYPE.as_bytes())
}

/// Returns the body without the trigger. `None` if the last item is no trigger.
pub(crate) fn without_trigger(body: &JsonParts) -> Option<JsonParts> {
    let whole = body.whole();
    let input = InputItems::of(&whole)?;
    let (last, before) = input.all().split_last()?;
    if !has_type(last, TYPE) {
        return None;
    }
    let place = input.place(last);
    // Without an item before it, nothing can be compacted.
    let end = input.place(before.last()?).end;
    // The cut begins behind the item before, so that the comma before the trigger leaves too.
    Some(JsonParts::new(vec![
        whole.slice(..end),
        whole.slice(place.end..),
    ]))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn only_a_trigger_at_the_end_is_removed() {
        let check = |body: &'static str, expected: Option<&str>| {
            let body = JsonParts::from(Bytes::from_static(body.as_bytes()));
            let without = without_trigger(&body).map(|without| without.whole().to_vec());
            assert_eq!(without.as_deref(), expected.map(str::as_bytes));
            assert!(has_trigger(&body) || expected.is_none());
        };
        check(
            r#"{"input": [{"a":1} , {"type":"compaction_trigger"} ],"b":2}"#,
            Some(r#"{"input": [{"a":1} ],"b":2}"#),
        );
        check(r#"{"input":[{"type":"compaction_trigger"},{"a":1}]}"#, None);
        check(r#"{"input":[{"type":"compaction_trigger"}]}"#, None);
        check(r#"{"input":[{"a":"compaction_trigger"}]}"#, None);
        check(r#"{"input":"compaction_trigger"}"#, None);
        check(r#"{"input":[{"a":1}]}"#, None);
    }
}
