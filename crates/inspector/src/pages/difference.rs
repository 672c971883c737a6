//! The difference between the views of two revisions.

use std::collections::HashMap;

use maud::{Markup, html};
use palimpsest_proto::context::v1::{BlockForm, GetViewRequest, GetViewResponse, ViewBlock};

use super::{Query, Viewer, blocks, links};
use crate::api::Api;
use crate::error::PageError;
use crate::event_text::{changes_view, describe};
use crate::format::{number, time, words};
use crate::layout::Layout;
use crate::routes::{SessionName, SessionPage};
use crate::text::shown;

/// The number of blocks in one reply, and the maximum number of replies for each view.
const PAGE_SIZE: u32 = 1_000;
const MAX_PAGES: usize = 10;
/// The maximum length of a text, in characters.
const MAX_TEXT: u32 = 1_000;
/// The maximum number of rows.
const MAX_ROWS: usize = 500;

pub(crate) async fn page(
    api: &Api,
    name: &SessionName,
    parameters: &Query,
    viewer: Viewer,
) -> Result<Markup, PageError> {
    let (Some(from), to) = (parameters.number("from")?, parameters.number("to")?) else {
        return Err(PageError::Input(
            "The address needs the parameter \"from\": the earlier revision.",
        ));
    };
    // Without `to`, the revision is 0, which stands for the current one.
    let (before, after) =
        futures::try_join!(whole(api, name, from), whole(api, name, to.unwrap_or(0)))?;
    // Between two revisions in a row there is one event.
    let event = if after.revision == before.revision + 1 {
        api.event_after(name, before.revision).await?
    } else {
        None
    };
    let rows = difference(&before.blocks, &after.blocks);
    let title = format!(
        "From revision {} to {}",
        number(before.revision),
        number(after.revision)
    );
    let layout = Layout::new(&title, viewer).in_session(name, SessionPage::View);
    Ok(layout.page(&html! {
        form.inline action=(name.path(SessionPage::Difference)) {
            label for="from" { "From revision" }
            input #from name="from" inputmode="numeric" value=(before.revision);
            label for="to" { "to" }
            input #to name="to" inputmode="numeric" value=(after.revision);
            button type="submit" { "Compare" }
        }
        @if let Some(event) = &event {
            @let (kind, text) = describe(event);
            p {
                strong { (kind) } " at " (time(event.time.as_ref())) ": " (shown(&text)) " "
                @if changes_view(event) {
                    a href=(links::undo(name, before.revision)) { "Undo…" }
                }
            }
        }
        p {
            (number(before.tokens.into())) " → " (number(after.tokens.into())) " tokens, "
            (number(before.blocks.len() as u64)) " → " (number(after.blocks.len() as u64)) " blocks, "
            (number(rows.len() as u64)) " of them differ."
        }
        @if rows.is_empty() {
            p { "Both requests are the same." }
        } @else {
            div.wide {
                table.view {
                    thead {
                        tr {
                            th scope="col" { "Message" }
                            th scope="col" { "Change" }
                            th scope="col" { "Before" }
                            th scope="col" { "After" }
                        }
                    }
                    tbody { @for row in rows.iter().take(MAX_ROWS) { (self::row(name, row)) } }
                }
            }
            @if rows.len() > MAX_ROWS {
                p.note { "The first " (MAX_ROWS) " differences are shown." }
            }
        }
    }))
}

/// Reads a whole view.
async fn whole(api: &Api, name: &SessionName, revision: u64) -> Result<GetViewResponse, PageError> {
    let mut request = GetViewRequest {
        session: name.resource(),
        revision,
        page_size: PAGE_SIZE,
        max_text_chars: MAX_TEXT,
        ..GetViewRequest::default()
    };
    let mut view = api
        .sessions()
        .get_view(Api::request(request.clone()))
        .await?
        .into_inner();
    // The first page is read already. The limit bounds the memory for a view of many small blocks.
    for _ in 1..MAX_PAGES {
        if view.next_page_token.is_empty() {
            break;
        }
        request.page_token = std::mem::take(&mut view.next_page_token);
        let more = api
            .sessions()
            .get_view(Api::request(request.clone()))
            .await?
            .into_inner();
        view.blocks.extend(more.blocks);
        view.next_page_token = more.next_page_token;
    }
    Ok(view)
}

/// A block of which the two views have different forms.
type Difference<'a> = (Option<&'a ViewBlock>, Option<&'a ViewBlock>);

/// The identity of a block in both views. Added texts and summaries have no block of their own.
fn key(block: &ViewBlock) -> (u64, u32, bool) {
    let stands_alone = matches!(block.form(), BlockForm::Added | BlockForm::Collapsed);
    (block.ordinal, block.block_index, stands_alone)
}

/// Returns the blocks that left, entered or changed their form, in the order of the views.
fn difference<'a>(before: &'a [ViewBlock], after: &'a [ViewBlock]) -> Vec<Difference<'a>> {
    let mut later: HashMap<_, &ViewBlock> = after.iter().map(|block| (key(block), block)).collect();
    let mut rows: Vec<Difference<'a>> = Vec::new();
    for block in before {
        match later.remove(&key(block)) {
            Some(same) if same.form == block.form && same.content == block.content => {}
            now => rows.push((Some(block), now)),
        }
    }
    // The blocks that `before` also has were removed from `later` above.
    let entered = after.iter().filter(|block| later.contains_key(&key(block)));
    rows.extend(entered.map(|block| (None, Some(block))));
    rows
}

fn row(name: &SessionName, (before, after): &Difference<'_>) -> Markup {
    let block = after.or(*before);
    let ordinal = block.map_or(0, |block| block.ordinal);
    let change = match (before, after) {
        (Some(_), None) => "left",
        (None, Some(_)) => "entered",
        _ => "changed",
    };
    html! {
        tr.{ "change-" (change) } {
            th scope="row" {
                a href=(links::message(name, ordinal)) { (number(ordinal)) }
                " " (block.map_or("", |block| blocks::role(block.role())))
            }
            td { (change) }
            td { (side(*before)) }
            td { (side(*after)) }
        }
    }
}

fn side(block: Option<&ViewBlock>) -> Markup {
    html! {
        @if let Some(block) = block {
            p.note { (words(block.form().as_str_name(), "BLOCK_FORM_")) ", " (number(block.tokens.into())) " tokens" }
            @if let Some(content) = &block.content { (blocks::block(content)) }
            @if block.is_cut { p.note { "The first " (number(MAX_TEXT.into())) " characters." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(ordinal: u64, form: BlockForm) -> ViewBlock {
        ViewBlock {
            ordinal,
            form: form.into(),
            ..ViewBlock::default()
        }
    }

    #[test]
    fn blocks_leave_enter_and_change() {
        // Message 1 leaves, message 2 is cleared, and message 4 enters. Message 3 is the same.
        let before = [
            block(1, BlockForm::Original),
            block(2, BlockForm::Original),
            block(3, BlockForm::Original),
        ];
        let after = [
            block(2, BlockForm::Cleared),
            block(3, BlockForm::Original),
            block(4, BlockForm::Original),
        ];
        let rows = difference(&before, &after);
        let pairs: Vec<_> = rows
            .iter()
            .map(|(a, b)| (a.map(|a| a.ordinal), b.map(|b| b.ordinal)))
            .collect();
        assert_eq!(
            pairs,
            [(Some(1), None), (Some(2), Some(2)), (None, Some(4))]
        );
    }
}
