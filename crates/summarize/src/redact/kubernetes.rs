//! Detection of Kubernetes Secrets: all values under `data` and `stringData` of an object with
//! `kind: Secret`, in YAML and JSON. Their names do not identify them as secrets, so `patterns`
//! misses some.
//!
//! `kubectl get secret -o yaml` prints `data` before `kind`. Values are therefore collected until
//! the end of their object and reported if its kind was found by then.

use std::ops::Range;

/// The name in the placeholder.
pub(super) const KIND: &str = "kubernetes secret";

/// The maximum number of open objects. A deeper object closes the outermost one, which bounds the
/// work per line.
const MAX_DEPTH: usize = 32;

/// The numbers of backslashes before each quote: for JSON, JSON in a JSON string, and one further
/// level.
pub(super) const JSON_ESCAPES: [usize; 3] = [0, 1, 3];

/// Returns true if the text may contain a Secret. Avoids the full scans for nearly all texts.
pub(super) fn is_possible(text: &str) -> bool {
    text.contains("Secret") && text.contains("kind")
}

/// An object that is not closed yet.
#[derive(Default)]
struct Object<'t> {
    /// YAML only: the column of the object's keys.
    column: usize,
    /// YAML only: the column of the keys under `data`, after the first such key.
    data_column: Option<usize>,
    /// The most recent key.
    key: &'t str,
    has_version: bool,
    has_kind: bool,
    is_secret: bool,
    values: Vec<Range<usize>>,
}

impl Object<'_> {
    fn is_in_data(&self) -> bool {
        matches!(self.key, "data" | "stringData")
    }

    fn set_kind(&mut self, kind: &str) {
        self.is_secret |= kind == "Secret";
    }

    fn close(self, found: &mut Vec<Range<usize>>) {
        if self.is_secret {
            found.extend(self.values);
        }
    }
}

/// Opens an object. Closes the outermost object if the depth limit is reached.
fn open<'t>(objects: &mut Vec<Object<'t>>, object: Object<'t>, found: &mut Vec<Range<usize>>) {
    if objects.len() == MAX_DEPTH {
        objects.remove(0).close(found);
    }
    objects.push(object);
}

/// Closes all open objects, because a text may be cut off. Returns the values in order.
fn sorted(objects: Vec<Object<'_>>, mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    for object in objects {
        object.close(&mut found);
    }
    found.sort_by_key(|value| value.start);
    found
}

/// Returns false for templates, variables and values that are already redacted.
fn is_literal(value: &str) -> bool {
    let others = ["[redacted", "{{", "${", "$(", "<"];
    !value.is_empty() && !others.iter().any(|other| value.starts_with(other))
}

/// A line of YAML.
struct Line<'t> {
    /// The column of the content after the dashes of list items.
    column: usize,
    is_item: bool,
    content: &'t str,
    /// The range of the content in the text.
    range: Range<usize>,
}

impl<'t> Line<'t> {
    fn parse(line: &'t str, start: usize) -> Self {
        let line = line.trim_end();
        let mut content = line.trim_start_matches(' ');
        let mut is_item = false;
        // One line can open several lists: `- - name: x`.
        while let Some(item) = content.strip_prefix("- ") {
            is_item = true;
            content = item.trim_start_matches(' ');
        }
        let column = line.len() - content.len();
        Self {
            column,
            is_item,
            content,
            range: start + column..start + line.len(),
        }
    }

    /// Returns the key and the value. The value may be empty.
    fn entry(&self) -> (&'t str, &'t str) {
        let (key, value) = self.content.split_once(':').unwrap_or((self.content, ""));
        (key, value.trim_start())
    }

    /// Returns the range of the value without quotes. Returns `None` if the value is on the
    /// following lines.
    fn value(&self) -> Option<Range<usize>> {
        let (_, value) = self.entry();
        let quotes = ['"', '\''];
        let right = value.trim_end_matches(quotes);
        let bare = right.trim_start_matches(quotes);
        let end = self.range.end - (value.len() - right.len());
        // `|` and `>` open a block scalar. Its text is on the following lines.
        let is_here = is_literal(bare) && !value.starts_with(['|', '>']);
        is_here.then(|| end - bare.len()..end)
    }
}

impl<'t> Object<'t> {
    /// Reads a line under `data`.
    fn read_data(&mut self, line: &Line<'_>) {
        let data_column = *self.data_column.get_or_insert(line.column);
        let value = if line.column > data_column {
            // A deeper line belongs to a block scalar.
            is_literal(line.content).then(|| line.range.clone())
        } else {
            line.value()
        };
        self.values.extend(value);
    }

    /// Reads a key of this object. Returns the ended object if the key starts the next one: without
    /// `---` between two objects, `apiVersion` and `kind` are repeated.
    fn read_key(&mut self, line: &Line<'t>) -> Option<Self> {
        let (key, value) = line.entry();
        let is_next = match key {
            "apiVersion" => self.has_version,
            "kind" => self.has_kind,
            _ => false,
        };
        let ended = is_next.then(|| std::mem::replace(self, Self::at(line.column)));
        self.key = key;
        self.data_column = None;
        self.has_version |= key == "apiVersion";
        if key == "kind" {
            self.has_kind = true;
            self.set_kind(value.trim_matches(['"', '\'']));
        }
        ended
    }

    fn at(column: usize) -> Self {
        Self {
            column,
            ..Self::default()
        }
    }
}

/// Returns the ranges of the values in YAML.
pub(super) fn in_yaml(text: &str) -> Vec<Range<usize>> {
    let (mut objects, mut found) = (Vec::<Object<'_>>::new(), Vec::new());
    let mut next_line = 0;
    for whole_line in text.split_inclusive('\n') {
        let line = Line::parse(whole_line, next_line);
        next_line += whole_line.len();
        if line.content.is_empty() {
            continue;
        }
        let is_separator = line.column == 0 && line.content.starts_with("---");
        // An object ends at a key in a lower column or at the next item of its list.
        while let Some(object) = objects.pop_if(|object| {
            let is_next_item = line.is_item && object.column == line.column;
            is_separator || is_next_item || object.column > line.column
        }) {
            object.close(&mut found);
        }
        // Values may be nested below `data`, so all enclosing objects are searched, innermost
        // first.
        let mut outer = objects.iter_mut().rev();
        let data = outer.find(|object| object.is_in_data() && object.column < line.column);
        if let Some(object) = data {
            object.read_data(&line);
            continue;
        }
        let is_inner = |object: &Object<'_>| object.column < line.column;
        if objects.last().is_none_or(is_inner) {
            open(&mut objects, Object::at(line.column), &mut found);
        }
        let ended = objects.last_mut().and_then(|object| object.read_key(&line));
        if let Some(object) = ended {
            object.close(&mut found);
        }
    }
    sorted(objects, found)
}

/// Returns the ranges of the values in JSON. `escapes` is the number of backslashes before each
/// quote.
pub(super) fn in_json(text: &str, escapes: usize) -> Vec<Range<usize>> {
    let (mut objects, mut found) = (Vec::<Object<'_>>::new(), Vec::new());
    // The start of the current string.
    let mut string: Option<usize> = None;
    let mut backslashes = 0;
    for (at, byte) in text.bytes().enumerate() {
        let before = std::mem::take(&mut backslashes);
        match byte {
            b'\\' => backslashes = before + 1,
            // JSON strings contain no line break, so an unmatched quote ends with its line.
            b'\n' => string = None,
            // In plain JSON, pairs of backslashes escape only each other: `\\"` ends a string and `\"` does not. One
            // level deeper, `\"` is a delimiter and `\\\"` is content.
            b'"' if before % (2 * (escapes + 1)) == escapes => {
                let Some(start) = string.take() else {
                    string = Some(at + 1);
                    continue;
                };
                let value = start..at - escapes;
                read(&mut objects, text, value, &text[at + 1..]);
            }
            b'{' if string.is_none() => open(&mut objects, Object::default(), &mut found),
            b'}' if string.is_none() => {
                if let Some(object) = objects.pop() {
                    object.close(&mut found);
                }
            }
            _ => {}
        }
    }
    sorted(objects, found)
}

/// Reads a string of the innermost object. The string is a key if a colon follows, and the value of
/// the last key otherwise.
fn read<'t>(objects: &mut [Object<'t>], text: &'t str, string: Range<usize>, after: &str) {
    let content = &text[string.clone()];
    let Some((object, outer)) = objects.split_last_mut() else {
        return;
    };
    // `{"data": {"token": "…"}}`: a value belongs to a Secret if its object is the value of `data` in the outer object.
    if after.trim_start_matches(' ').starts_with(':') {
        object.key = content;
    } else if let Some(secret) = outer.last_mut().filter(|outer| outer.is_in_data()) {
        secret.values.extend(is_literal(content).then_some(string));
    } else if object.key == "kind" {
        object.set_kind(content);
    }
}
