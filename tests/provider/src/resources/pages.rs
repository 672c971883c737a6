//! Pages of lists.

use serde_json::{Value, json};

use super::Call;
use crate::refusal::Refusal;

const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 1_000;

impl Call<'_> {
    /// Returns the page of a list that the query selects. Each item has its id.
    pub(super) fn page(&self, items: &[(&str, Value)]) -> Result<Value, Refusal> {
        let limit = match self.query("limit") {
            None => DEFAULT_LIMIT,
            Some(limit) => limit
                .parse()
                .ok()
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| Refusal::invalid("limit: Input should be between 1 and 1000"))?,
        };
        // `next_page` is `page_ID` with the id of the last item, so both forms of cursor find an item.
        let cursor = self
            .query("page")
            .map(|page| page.trim_start_matches("page_"));
        let after = self.query("after_id").or(self.query("after")).or(cursor);
        let start = match after {
            None => 0,
            Some(after) => {
                let found = items.iter().position(|(id, _)| *id == after);
                found.ok_or_else(|| Refusal::invalid(format!("no object {after}")))? + 1
            }
        };
        let end = items.len().min(start + limit);
        let page = &items[start..end];
        let id = |item: Option<&(&str, Value)>| item.map(|(id, _)| (*id).to_owned());
        let (first, last) = (id(page.first()), id(page.last()));
        let has_more = end < items.len();
        let next = last.as_ref().filter(|_| has_more);
        let data: Vec<&Value> = page.iter().map(|(_, item)| item).collect();
        Ok(if self.is_anthropic() {
            json!({
                "data": data, "has_more": has_more, "first_id": first, "last_id": last,
                "next_page": next.map(|id| format!("page_{id}")),
            })
        } else {
            json!({
                "object": "list", "data": data, "has_more": has_more,
                "first_id": first, "last_id": last,
            })
        })
    }
}
