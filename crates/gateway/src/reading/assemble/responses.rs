//! Assembles a response of OpenAI's Responses API.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Progress, parse};
use crate::reading::fields::Fields;
use crate::reading::{ResponseEnd, Unread};

/// A response so far.
///
/// The last event contains the whole response. The complete items before it are kept for a response that is cut.
#[derive(Debug, Default)]
pub(in crate::reading) struct Responses {
    /// The response as the latest event with it contains it. `None` before the first event.
    response: Option<Box<RawValue>>,
    /// The complete items of the output, by their position.
    items: Vec<(u64, Box<RawValue>)>,
    memory: usize,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    response: Option<Box<RawValue>>,
    item: Option<Box<RawValue>>,
    output_index: Option<u64>,
}

impl Responses {
    pub(super) fn add(&mut self, data: &[u8]) -> Result<Progress, Unread> {
        // Events of parts of an item are the majority. The item contains the same text, so they are not parsed further.
        let event: Event<'_> = parse(data)?;
        let progress = match &*event.kind {
            "response.completed" | "response.incomplete" => Progress::Ended(ResponseEnd::Complete),
            "response.failed" => Progress::Ended(ResponseEnd::Failed),
            "error" => return Ok(Progress::Ended(ResponseEnd::Failed)),
            "response.output_item.done" => {
                let item = event.item.ok_or(Unread::Unknown)?;
                self.memory += item.get().len();
                self.items
                    .push((event.output_index.ok_or(Unread::Unknown)?, item));
                return Ok(Progress::Open);
            }
            "response.created" => Progress::Open,
            _ => return Ok(Progress::Open),
        };
        let response = event.response.ok_or(Unread::Unknown)?;
        // The sum contains the size of the response before, which the new one replaces.
        let before = self.response.as_ref().map_or(0, |raw| raw.get().len());
        self.memory = self.memory - before + response.get().len();
        self.response = Some(response);
        Ok(progress)
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    pub(super) fn finish(mut self) -> serde_json::Result<Option<Vec<u8>>> {
        let Some(response) = self.response else {
            return Ok(None);
        };
        let mut fields: Fields = serde_json::from_str(response.get())?;
        // Some providers leave the output of the last event empty, because the items were sent before.
        let has_output = fields
            .get("output")
            .is_some_and(|output| output.get() != "[]");
        if !has_output {
            self.items.sort_by_key(|(index, _)| *index);
            let items: Vec<_> = self.items.iter().map(|(_, item)| item).collect();
            fields.set_value("output", &items)?;
        }
        serde_json::to_vec(&fields).map(Some)
    }
}
