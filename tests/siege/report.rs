//! The report of a siege.

use std::ops::Range;
use std::time::Instant;

use crate::latency::Figures;
use crate::phases::PhaseOutcome;
use crate::verdict::limits;

/// Prints the attacks, the figures of the honest tenant and of the server, and the verdict if there is one.
pub(crate) fn print(outcome: &PhaseOutcome, wrong: Option<&[String]>) {
    eprintln!(
        "\n{:<20} {:>11} {:>9} {:>6}  outcomes",
        "attack", "connections", "calls", "open"
    );
    for (name, tally) in &outcome.attacks {
        let (connections, calls, open) = (tally.connections(), tally.calls(), tally.open());
        eprintln!(
            "{name:<20} {connections:>11} {calls:>9} {open:>6}  {}",
            tally.outcomes()
        );
    }
    eprintln!(
        "\n{:<20} {:>7} {:>9} {:>10} {:>10} {:>10}",
        "honest tenant", "calls", "unserved", "p50", "p99", "max"
    );
    print_phase(outcome, "before", &outcome.before);
    print_phase(outcome, "during", &outcome.during);
    print_phase(outcome, "after", &outcome.after);
    for (refusal, count) in &outcome.refusals {
        eprintln!("  {count} attempts repeated after {refusal}");
    }
    let most = &outcome.most;
    eprintln!("\nmemory at most         {} MiB of 2048", most.memory >> 20);
    eprintln!("file handles at most   {}", most.handles);
    eprintln!(
        "lines of level WARN    {}, {} in the worst second",
        most.warnings, most.warnings_a_second
    );
    let limits = limits(outcome);
    eprintln!(
        "limits of p99          {:.1?} in any 10 s of the attacks (1 s, or 20 times that before), \
         {:.1?} from 10 s after them",
        limits.during, limits.after
    );
    if let Some(worst) = outcome
        .latencies
        .windows(&outcome.during)
        .iter()
        .map(|it| it.p99)
        .max()
    {
        eprintln!("worst p99 in 10 s      {worst:.1?}");
    }
    match wrong {
        None => eprintln!("verdict                none: latencies are not judged here"),
        Some([]) => eprintln!("verdict                survived"),
        Some(_) => eprintln!("verdict                failed"),
    }
    for one in wrong.into_iter().flatten() {
        eprintln!("WRONG                  {one}");
    }
}

fn print_phase(outcome: &PhaseOutcome, phase: &str, span: &Range<Instant>) {
    line(phase, &outcome.latencies.figures(span));
    for (kind, figures) in outcome.latencies.by_kind(span) {
        line(&format!("  {kind}"), &figures);
    }
}

fn line(label: &str, figures: &Figures) {
    let Figures {
        calls,
        given_up,
        p50,
        p99,
        max,
    } = figures;
    eprintln!("{label:<20} {calls:>7} {given_up:>9} {p50:>10.1?} {p99:>10.1?} {max:>10.1?}");
}
