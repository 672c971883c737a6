//! The report as a self-contained HTML page, without scripts, fonts or images from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Report;
use super::limits::{OF_LIMIT_PERCENT, promises};
use super::table::{
    GROWTH_HEAD, HEAD, MIX_HEAD, PROMISE_HEAD, SESSIONS_HEAD, cells, growth_cells, mix_cells,
    sessions_cells, verdict,
};
use crate::{growth, mix};
use palimpsest_load::figures::or_dash;
use palimpsest_load::test_server::PATIENT;

const STYLE: &str = "
:root{color-scheme:light dark;--text:#14171c;--soft:#5b6472;--line:#e3e6eb;--sheet:#fff;--good:#00785a;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--text:#f2f4f7;--soft:#aab2bf;--line:#2b313b;--sheet:#14171c;--good:#2fd0a5;--bad:#ff8a80}}
body{font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif;color:var(--text);background:var(--sheet);
max-width:1080px;margin:2.5rem auto;padding:0 1.5rem}
h1{font-size:1.7rem;margin:0}h2{font-size:1.2rem;margin:2.8rem 0 .4rem}p{margin:.4rem 0;max-width:50rem}
.line{max-width:none}.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.8rem 0;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:.22rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500}td:first-child,th:first-child,.words td:nth-child(2),.words th:nth-child(2){text-align:left}
tr.first td{border-top:2px solid var(--line)}tr.head td{font-weight:600}svg{max-width:100%;height:auto;margin:.6rem 0}
details{margin:.8rem 0}code{font-size:12px;white-space:pre-wrap;word-break:break-all}li{margin:.3rem 0}
";

/// Renders the page.
pub(super) fn page(report: &Report, plots: &[(&'static str, String)]) -> String {
    let plot = |name: &str| {
        let found = plots.iter().find(|(named, _)| *named == name);
        PreEscaped(found.map_or_else(String::new, |(_, svg)| svg.clone()))
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Palimpsest under load" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Palimpsest under load" }
                p.soft.line { (report.when) " · " (report.machine) " · " (report.binary) }
                @if report.quick {
                    p.bad { "A quick run: it shows that everything works, and not how fast it is." }
                }
                h2 { "What is promised" }
                (promised(report))
                @if !report.rows.is_empty() {
                    h2 { "Each call" }
                    (calls(report))
                    (plot("latency"))
                    (commands(report))
                }
                @if !report.mix.is_empty() {
                    h2 { "Agents at work" }
                    p.soft { (mix::about()) }
                    (table(&MIX_HEAD, report.mix.iter().flat_map(mix_cells), "turns"))
                    (said(report.mix.iter().flat_map(|mix| &mix.errors)))
                }
                @if !report.growth.is_empty() {
                    h2 { "Long transcripts" }
                    p.soft { (growth::about()) " Milliseconds." }
                    (plot("growth"))
                    (table(&GROWTH_HEAD, report.growth.iter().map(growth_cells), ""))
                }
                @if !report.sessions.is_empty() {
                    h2 { "Many sessions" }
                    p.soft { (palimpsest_load::sessions::about()) }
                    (plot("sessions"))
                    (plot("memory"))
                    (table(&SESSIONS_HEAD, report.sessions.iter().map(sessions_cells), ""))
                }
            }
        }
    }
    .into_string()
}

fn promised(report: &Report) -> Markup {
    html! {
        div.wide { table {
            tr { @for name in PROMISE_HEAD { th { (name) } } }
            @for promise in promises(report) {
                tr {
                    td { (promise.what) }
                    td { (promise.measured) }
                    td { (promise.limit) }
                    td class=(match promise.kept { Some(true) => "good", Some(false) => "bad", None => "soft" }) {
                        (verdict(promise.kept))
                    }
                }
            }
        } }
    }
}

/// Renders the table of all runs of ghz.
fn calls(report: &Report) -> Markup {
    html! {
        p.soft {
            "ghz and the server share this machine, so that what ghz takes is missing to the server. Each run takes "
            (report.seconds) "\u{a0}s, or as many calls as there are sessions or results for. In a closed loop every connection calls again as soon as \
             it was answered; because such callers come again at once when they are refused, that server is set to "
            code { (PATIENT) } ". In an open loop calls come at the rate that is offered, half of what the best closed one reached \
             unless somebody said another, to a server as it comes. Latencies are those of calls that were answered with OK, without the first of each connection. "
            em { "of limit" } ": calls a second against an empty service that moves the same bytes; at least " (OF_LIMIT_PERCENT)
            " % is wanted, and – was not measured here. " em { "refused" } ": with RESOURCE_EXHAUSTED, because the server sheds load. "
            em { "server ms" } ": processor time of the server for a call."
        }
        div.wide { table.words {
            tr { @for name in HEAD { th { (name) } } th { "server ms" } }
            @for (index, row) in report.rows.iter().enumerate() {
                @let first = index == 0 || report.rows[index - 1].name != row.name;
                tr class=(if first { "first" } else { "" }) {
                    @for (column, cell) in cells(row).into_iter().enumerate() {
                        // The last column has the number of errors.
                        @let bad = column == HEAD.len() - 1 && row.failed() > 0;
                        td class=(if bad { "bad" } else { "" }) { (if column < 2 && !first { String::new() } else { cell }) }
                    }
                    td { (or_dash(row.cpu_ms)) }
                }
            }
        } }
        (said(report.rows.iter().flat_map(|row| &row.errors)))
    }
}

/// Renders the error messages with their counts.
fn said<'a>(errors: impl Iterator<Item = (&'a String, &'a u64)>) -> Markup {
    let errors: Vec<_> = errors.collect();
    html! {
        @if !errors.is_empty() {
            p.bad { "Errors" }
            ul { @for (text, times) in errors { li { (times) " × " code { (text) } } } }
        }
    }
}

fn commands(report: &Report) -> Markup {
    html! {
        details {
            summary { "The commands" }
            p.soft {
                "From the root of the repository. Requests and sessions are made before each run and are gone after it; the \
                 configurations that are named stay, and take requests of your own."
            }
            ul { @for row in &report.rows { li { code { (row.command) } } } }
        }
    }
}

/// Renders a table. Rows whose first cell contains `word` are highlighted.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>, word: &str) -> Markup {
    html! {
        div.wide { table {
            tr { @for name in head { th { (name) } } }
            @for row in rows {
                tr class=(if !word.is_empty() && row[0].contains(word) { "head first" } else { "" }) {
                    @for cell in &row { td { (cell) } }
                }
            }
        } }
    }
}
