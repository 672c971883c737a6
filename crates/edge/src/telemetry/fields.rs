//! Span fields in JSON log lines. Every call has a span, and most spans are never logged. Fields are therefore encoded
//! at low cost, each one once.

use std::fmt;

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormattedFields;
use tracing_subscriber::fmt::format::{FormatFields, Writer};

/// Formats fields as a JSON object.
///
/// The formatter of `tracing-subscriber` parses and writes the whole object again for each field that is recorded
/// later.
#[derive(Debug, Clone, Copy)]
pub(super) struct JsonObject;

impl<'writer> FormatFields<'writer> for JsonObject {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut object = Object::after(String::new());
        fields.record(&mut object);
        writer.write_str(&object.finish()?)
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        // Reopens the encoded object and appends, instead of parsing it.
        let mut object = Object::after(std::mem::take(&mut current.fields));
        fields.record(&mut object);
        current.fields = object.finish()?;
        Ok(())
    }
}

/// A JSON object without its closing brace.
struct Object(Vec<u8>);

impl Object {
    /// Continues an encoded object, or starts a new one if `object` is not an object.
    fn after(object: String) -> Self {
        let mut bytes = object.into_bytes();
        match bytes.pop() {
            Some(b'}') => {}
            _ => bytes = vec![b'{'],
        }
        Self(bytes)
    }

    fn finish(mut self) -> Result<String, fmt::Error> {
        self.0.push(b'}');
        String::from_utf8(self.0).map_err(|_| fmt::Error)
    }

    fn field(&mut self, field: &Field, value: impl Serialize) {
        let before = self.0.len();
        // The opening brace is one byte, so more bytes are earlier fields.
        if before > 1 {
            self.0.push(b',');
        }
        // Field names are identifiers and need no escaping.
        self.0.push(b'"');
        self.0.extend_from_slice(field.name().as_bytes());
        self.0.extend_from_slice(b"\":");
        // A value that cannot be encoded must not leave a partial field.
        if serde_json::to_writer(&mut self.0, &value).is_err() {
            self.0.truncate(before);
        }
    }
}

impl Visit for Object {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.field(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing::field::Empty;
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use crate::telemetry::tests::Memory;

    #[test]
    fn fields_recorded_at_any_time_are_logged() {
        let written = Memory::default();
        let writer = written.clone();
        let lines = super::super::lines(palimpsest_settings::LogFormat::Json, false, move || {
            writer.clone()
        });
        tracing::subscriber::with_default(Registry::default().with(lines), || {
            let span = tracing::info_span!("call", a = "x\"y", n = 3, late = Empty, never = Empty);
            span.record("late", true);
            let empty = tracing::info_span!("empty", only = Empty);
            span.in_scope(|| tracing::info!("one"));
            empty.in_scope(|| tracing::info!("two"));
            empty.record("only", tracing::field::display("it"));
            empty.in_scope(|| tracing::info!("three"));
        });
        let lines: Vec<serde_json::Value> = (written.text().lines())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let spans: Vec<_> = lines.iter().map(|line| line["span"].to_string()).collect();
        assert_eq!(
            spans,
            [
                r#"{"a":"x\"y","late":true,"n":3,"name":"call"}"#,
                r#"{"name":"empty"}"#,
                r#"{"name":"empty","only":"it"}"#,
            ]
        );
    }
}
