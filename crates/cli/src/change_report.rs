//! The report of a change of a view, for people: tokens, cache cost, the content that left or returned, and the new
//! revision.

use palimpsest_proto::context::v1::{
    CacheLedger, EventKind, LevelEffect, RecoveryReport, RemovedItem, RemovedItemKind, Warning,
};

use super::output::{align_right, count, note, number, print, print_line, table, words};

/// The maximum number of items in a table.
const MAX_ITEMS: usize = 20;

/// The parts that the replies of all changes of a view have.
pub(super) struct ChangeReport<'a> {
    pub(super) effect: Option<&'a LevelEffect>,
    pub(super) cache_ledger: Option<&'a CacheLedger>,
    pub(super) warnings: &'a [Warning],
    pub(super) revision: u64,
    pub(super) epoch: u64,
}

impl ChangeReport<'_> {
    /// Prints the tokens, the cost in the prompt cache, the revision and the warnings.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        if let Some(effect) = self.effect {
            fact("tokens", &tokens(effect.before_tokens, effect.after_tokens))?;
        }
        if let Some(ledger) = self.cache_ledger {
            fact("cache", &cache(ledger))?;
        }
        fact(
            "revision",
            &format!("{}, epoch {}", self.revision, self.epoch),
        )?;
        // Warnings are on standard error, because they are no part of the result.
        for warning in self.warnings {
            note(&format!("warning: {}", warning.detail));
        }
        Ok(())
    }
}

/// Prints one fact of a report.
pub(super) fn fact(name: &str, text: &str) -> anyhow::Result<()> {
    print_line(&format!("{name:<10} {text}"))
}

fn tokens(before: u32, after: u32) -> String {
    let change = if after <= before {
        format!("{} freed", number((before - after).into()))
    } else {
        format!("{} added", number((after - before).into()))
    };
    format!(
        "{} → {}, {change}",
        number(before.into()),
        number(after.into())
    )
}

fn cache(ledger: &CacheLedger) -> String {
    if ledger.probably_cold {
        return "nothing to write again, because the prompt cache is probably cold".to_owned();
    }
    if ledger.invalidated_tokens == 0 {
        return "no cached tokens are written again".to_owned();
    }
    let mut text = format!(
        "{} cached tokens are written again, and each request has {} fewer",
        number(ledger.invalidated_tokens.into()),
        number(ledger.saved_tokens.into())
    );
    if let Some(requests) = ledger.break_even_requests {
        text = format!("{text}: even after {requests:.1} requests");
    }
    text
}

/// Prints the items that left the view, and the revision that brings them back.
pub(super) fn print_removed(report: Option<&RecoveryReport>) -> anyhow::Result<()> {
    let Some(report) = report else {
        return Ok(());
    };
    print_items("leaves the view", &report.items, report.total_items)
}

/// Prints the items that returned to the view.
pub(super) fn print_returned(report: Option<&RecoveryReport>) -> anyhow::Result<()> {
    let Some(report) = report else {
        return Ok(());
    };
    print_items(
        "returns to the view",
        &report.returned_items,
        report.total_returned_items,
    )
}

fn print_items(title: &str, items: &[RemovedItem], total: u32) -> anyhow::Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    let mut rows = table(&[title, "tokens", "first message", "removed by"]);
    for item in items.iter().take(MAX_ITEMS) {
        rows.add_row([
            item_text(item),
            number(item.tokens.into()),
            item.first_message_id.clone(),
            cause(item),
        ]);
    }
    align_right(&mut rows, &[1]);
    print(&format!("{rows}\n"))?;
    let shown = items.len().min(MAX_ITEMS);
    // A reply lists at most 100 items, and `total` counts all of them.
    let rest = (total as usize).saturating_sub(shown);
    if rest > 0 {
        print_line(&format!("and {} more", count(rest, "item")))?;
    }
    Ok(())
}

fn item_text(item: &RemovedItem) -> String {
    let messages = count(item.messages as usize, "message");
    match item.kind() {
        RemovedItemKind::Turn => format!("turn {}, {messages}", item.turn_id),
        RemovedItemKind::Message => "1 message".to_owned(),
        RemovedItemKind::Span => messages,
        RemovedItemKind::Block => "a block".to_owned(),
        RemovedItemKind::ToolResult => "a tool result".to_owned(),
        RemovedItemKind::Unspecified => "an item".to_owned(),
    }
}

fn cause(item: &RemovedItem) -> String {
    let kind = EventKind::try_from(item.cause).unwrap_or_default();
    let kind = words(kind.as_str_name(), "EVENT_KIND_");
    match item.cause_revision {
        0 => kind,
        revision => format!("{kind} at revision {revision}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_cache_costs_are_readable() {
        assert_eq!(tokens(81_203, 12_400), "81,203 → 12,400, 68,803 freed");
        assert_eq!(tokens(5, 7), "5 → 7, 2 added");
        let ledger = CacheLedger {
            invalidated_tokens: 12_000,
            saved_tokens: 68_803,
            break_even_requests: Some(3.24),
            ..CacheLedger::default()
        };
        assert_eq!(
            cache(&ledger),
            "12,000 cached tokens are written again, and each request has 68,803 fewer: even after 3.2 requests"
        );
    }
}
