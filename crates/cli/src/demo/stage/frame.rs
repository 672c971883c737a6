//! The layout of a frame for a screen of any size.

use anstyle::{AnsiColor, Style};
use palimpsest_proto::context::v1::MemorySectionKind;

use super::chart::{self, short};
use super::style::{self, WindowShare, bold, colour, dim};
use crate::demo::picture::Picture;
use crate::output::{count, number};
use crate::screen::Grid;

/// The width of the margin on both sides.
const MARGIN: usize = 2;
/// The number of rows without the chart and the lists.
const FIXED_ROWS: usize = 13;
const MIN_CHART: usize = 4;
const MAX_CHART: usize = 14;
/// The width of the section names.
const NAME: usize = 10;
/// The minimum height for blank rows between the parts.
const ROOMY: usize = 30;

/// Draws a frame. Without colors, different characters distinguish the categories of tokens.
pub(super) fn draw(picture: &Picture, (width, height): (usize, usize), coloured: bool) -> Grid {
    let mut frame = FrameBuilder {
        grid: Grid::new(width, height),
        picture,
        coloured,
        left: MARGIN,
        right: width.saturating_sub(MARGIN).max(MARGIN),
        y: 0,
    };
    let roomy = height >= ROOMY;
    let gap = usize::from(roomy);
    frame.title();
    frame.y += gap;
    frame.window(1 + gap);
    frame.y += gap;
    // The five gaps: three between the parts, one in the thicker bar, and one above the last row.
    let rest = height.saturating_sub(FIXED_ROWS + 5 * gap);
    let chart = (rest * 3 / 5).clamp(MIN_CHART, MAX_CHART);
    frame.chart(chart);
    frame.y += gap;
    frame.cost();
    frame.y += 1;
    // The last row is reserved for the current message.
    frame.lists(height.saturating_sub(frame.y + 1 + gap));
    frame.now(height.saturating_sub(1));
    frame.grid
}

struct FrameBuilder<'p> {
    grid: Grid,
    picture: &'p Picture,
    coloured: bool,
    left: usize,
    right: usize,
    /// The next row.
    y: usize,
}

impl FrameBuilder<'_> {
    fn width(&self) -> usize {
        self.right - self.left
    }

    fn title(&mut self) {
        let picture = self.picture;
        let x = self.grid.put(self.left, self.y, "palimpsest", bold());
        let what = format!("a coding session, seed {}", picture.seed);
        self.grid.put(x + 1, self.y, &what, dim());
        let right = if picture.done {
            let requests = count(picture.with.sent.len(), "request");
            format!("{requests}, {}", count(picture.messages, "message"))
        } else {
            format!(
                "turn {} of {}   request {} of {}",
                picture.asked,
                picture.asks,
                picture.with.sent.len(),
                picture.requests
            )
        };
        self.grid
            .put_right(self.right, self.y, &right, Style::new());
        self.y += 1;
    }

    /// Draws the context window as a bar.
    fn window(&mut self, thick: usize) {
        let budget = &self.picture.budget;
        let (window, width) = (u64::from(budget.window_tokens).max(1), self.width());
        let cells = |tokens: u64| usize::try_from(tokens * width as u64 / window).unwrap_or(width);
        let (state, style) = style::state(budget.state());
        let used = number(budget.used_tokens.into());
        let x = self.grid.put(self.left, self.y, &used, bold());
        let of = format!(" of {} tokens  ", number(budget.window_tokens.into()));
        let x = self.grid.put(x, self.y, &of, Style::new());
        self.grid.put(x, self.y, state, style);
        let marks = [
            ("warn", budget.warn_at_tokens, AnsiColor::Yellow),
            ("compact", budget.compact_at_tokens, AnsiColor::Magenta),
            ("block", budget.block_at_tokens, AnsiColor::Red),
        ];
        // The names of the marks are drawn from the right, because the last one must end at the margin.
        let mut end = self.right;
        for (name, at, mark) in marks.into_iter().rev() {
            let words = format!(" {name} {}", short(at.into()));
            end = self.grid.put_right(end, self.y, &words, Style::new());
            end = self.grid.put_right(end, self.y, "╵", colour(mark));
            end = end.saturating_sub(1);
        }
        self.y += 1;
        let shares = style::shares(&self.picture.breakdown);
        let (mut tokens, mut filled) = (0, 0);
        for share in shares {
            tokens += u64::from(share.tokens);
            // The end of each segment is computed from the running sum, so rounding errors do not add up.
            let until = cells(tokens).min(width);
            self.fill(
                filled..until,
                thick,
                self.glyph(&share),
                colour(share.colour),
            );
            filled = until.max(filled);
        }
        self.fill(filled..width, thick, '·', dim());
        self.y += thick;
        for (_, at, mark) in marks {
            let x = self.left + cells(at.into()).min(width.saturating_sub(1));
            self.grid.set(x, self.y, '╵', colour(mark));
        }
        self.legend(&shares);
        self.y += 1;
    }

    fn fill(&mut self, cells: std::ops::Range<usize>, thick: usize, glyph: char, style: Style) {
        for y in self.y..self.y + thick {
            for x in cells.clone() {
                self.grid.set(self.left + x, y, glyph, style);
            }
        }
    }

    fn glyph(&self, share: &WindowShare) -> char {
        if self.coloured { '█' } else { share.glyph }
    }

    /// Draws the names of the categories, as many as fit before the marks.
    fn legend(&mut self, shares: &[WindowShare]) {
        let y = self.y;
        let mut marks = self.grid.row(y).iter();
        let end = marks.position(|cell| cell.glyph == '╵');
        // The legend is in the row of the marks and ends before the first of them.
        let end = end.unwrap_or(self.right);
        let mut x = self.left;
        for share in shares.iter().filter(|share| share.tokens > 0) {
            let words = format!(" {} {}  ", share.name, short(share.tokens.into()));
            if x + words.chars().count() > end {
                break;
            }
            self.grid.set(x, y, self.glyph(share), colour(share.colour));
            x = self.grid.put(x + 1, y, &words, Style::new());
        }
    }

    fn chart(&mut self, height: usize) {
        let x = self
            .grid
            .put(self.left, self.y, "tokens of each request   ", dim());
        self.grid.set(x, self.y, '█', colour(AnsiColor::Green));
        let x = self
            .grid
            .put(x + 1, self.y, " with palimpsest   ", Style::new());
        self.grid.set(x, self.y, '░', colour(AnsiColor::Red));
        self.grid
            .put(x + 1, self.y, " with every level off", Style::new());
        self.y += 1;
        let place = chart::ChartArea {
            x: self.left,
            y: self.y,
            width: self.width(),
            height,
        };
        // On a low terminal, the chart would lose the rows with its zero line, so it is left out.
        if self.y + height <= self.grid.height {
            chart::draw(&mut self.grid, self.picture, place);
        }
        self.y += height;
    }

    /// Draws the costs so far.
    fn cost(&mut self) {
        let picture = self.picture;
        let (with, without, share) = picture.costs();
        let x = self.grid.put(self.left, self.y, "cost ", dim());
        let x = self
            .grid
            .put(x, self.y, &number(with), colour(AnsiColor::Green).bold());
        let words = format!(" instead of {} uncached tokens  ", number(without));
        let x = self.grid.put(x, self.y, &words, Style::new());
        let percent = format!("{}.{} %", share / 10, share % 10);
        let x = self.grid.put(x, self.y, &percent, bold());
        let split = &picture.with.split;
        let cache = format!(
            "cache: {} read, {} written",
            short(split.cache_read),
            short(split.cache_write)
        );
        if x + 2 + cache.len() <= self.right {
            self.grid.put_right(self.right, self.y, &cache, dim());
        }
        self.y += 1;
    }

    /// Draws the timeline and session memory side by side.
    fn lists(&mut self, height: usize) {
        let half = self.width() * 11 / 20;
        let rows = height.saturating_sub(1);
        self.timeline(self.left, half.saturating_sub(2), rows);
        let x = self.left + half;
        self.memory(x, self.right.saturating_sub(x), rows);
        self.y += height;
    }

    fn timeline(&mut self, x: usize, width: usize, rows: usize) {
        self.grid
            .put_cut(x, self.y, "actions of the levels", width, dim());
        let all = &self.picture.timeline;
        let latest = all.iter().skip(all.len().saturating_sub(rows));
        for (row, one) in latest.enumerate() {
            let y = self.y + 1 + row;
            let name = format!("{:<8}", one.actor.name());
            self.grid
                .put_cut(x, y, &name, width, style::actor(one.actor));
            let freed = one.freed.filter(|freed| *freed > 0);
            let freed = freed.map(|freed| format!(" −{}", short(freed.into())));
            let freed = freed.unwrap_or_default();
            let room = width.saturating_sub(name.len() + freed.chars().count());
            self.grid
                .put_cut(x + name.len(), y, &one.text, room, Style::new());
            self.grid.put_right(x + width, y, &freed, bold());
        }
    }

    /// Draws session memory: each section with as many of its last lines as fit.
    fn memory(&mut self, x: usize, width: usize, rows: usize) {
        let memory = &self.picture.memory;
        let heading = format!(
            "summary.md  version {}  {} tokens",
            memory.version,
            number(memory.tokens.into())
        );
        self.grid.put_cut(x, self.y, &heading, width, dim());
        let sections: Vec<(&str, Vec<&str>)> = memory
            .sections
            .iter()
            .map(|section| (name(section.kind()), lines(&section.body)))
            .filter(|(_, lines)| !lines.is_empty())
            .collect();
        if sections.is_empty() || rows == 0 {
            return;
        }
        let mut y = self.y + 1;
        let mut left = rows;
        for (at, (name, lines)) in sections.iter().enumerate() {
            // The remaining rows are divided among the remaining sections.
            // A section gets at least one row, as long as rows are left.
            let share = (left / (sections.len() - at)).max(1).min(left);
            if share == 0 {
                return;
            }
            self.grid
                .put_cut(x, y, name, NAME, colour(AnsiColor::Magenta));
            let shown = lines.len().min(share);
            for line in &lines[lines.len() - shown..] {
                self.grid
                    .put_cut(x + NAME, y, line, width.saturating_sub(NAME), Style::new());
                y += 1;
            }
            left -= shown;
        }
    }

    /// Draws the current message, or the results of the final checks.
    fn now(&mut self, y: usize) {
        let (who, text) = &self.picture.now;
        if self.picture.done {
            let (text, style) = match self.picture.verdict.as_str() {
                "" => ("Reading all removed messages back…", dim()),
                verdict => (verdict, colour(AnsiColor::Green)),
            };
            self.grid.put_cut(self.left, y, text, self.width(), style);
            return;
        }
        let style = if *who == "user" {
            colour(AnsiColor::Cyan).bold()
        } else {
            colour(AnsiColor::Green)
        };
        let x = self.grid.put(self.left, y, who, style);
        self.grid.put_cut(
            x + 1,
            y,
            text,
            self.right.saturating_sub(x + 1),
            Style::new(),
        );
    }
}

/// Returns the lines of a section without blank lines and code fences.
fn lines(body: &str) -> Vec<&str> {
    let lines = body.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("```"))
        .collect()
}

/// Returns the short name of a section.
fn name(kind: MemorySectionKind) -> &'static str {
    match kind {
        MemorySectionKind::SessionTitle => "title",
        MemorySectionKind::CurrentState => "state",
        MemorySectionKind::TaskSpecification => "task",
        MemorySectionKind::FilesAndFunctions => "files",
        MemorySectionKind::Workflow => "workflow",
        MemorySectionKind::ErrorsAndCorrections => "errors",
        MemorySectionKind::Documentation => "system",
        MemorySectionKind::Learnings => "learnings",
        MemorySectionKind::KeyResults => "results",
        MemorySectionKind::Worklog => "worklog",
        MemorySectionKind::Unspecified => "",
    }
}
