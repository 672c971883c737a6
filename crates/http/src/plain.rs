//! Messages of the contract as JSON in the form of the REST API, for programs in this process.

use prost::Message;

use crate::json::{Form, Schema, write};
use crate::service::{BuildError, descriptors};

/// The package of the contract.
const PACKAGE: &str = "palimpsest.context.v1";

/// Writes messages of the contract as JSON in the form of the REST API.
#[derive(Debug)]
pub struct PlainJson(Schema);

impl PlainJson {
    /// Compiles the contract.
    pub fn new() -> Result<Self, BuildError> {
        Ok(Self(Schema::new(&descriptors()?)?))
    }

    /// Returns a message as a line of JSON. `name` is its name in the package of the contract. Returns `None` if the
    /// message is of another type.
    pub fn text(&self, name: &str, message: &impl Message) -> Option<String> {
        let index = self.0.find(&format!("{PACKAGE}.{name}"))?;
        let mut out = Vec::new();
        write(
            &self.0,
            index,
            Form::Plain,
            &message.encode_to_vec(),
            &mut out,
        )
        .ok()?;
        String::from_utf8(out).ok()
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_proto::context::v1::{LevelEffect, SnipResponse};

    use super::*;

    #[test]
    fn a_message_has_the_names_and_numbers_of_the_rest_api() {
        let json = PlainJson::new().unwrap();
        let response = SnipResponse {
            effect: Some(LevelEffect {
                trigger: 2,
                freed_tokens: 70,
                ..LevelEffect::default()
            }),
            revision: 1 << 40,
            ..SnipResponse::default()
        };
        assert_eq!(
            json.text("SnipResponse", &response).unwrap(),
            concat!(
                r#"{"effect":{"operation_id":"","trigger":"manual","before_tokens":0,"after_tokens":0,"#,
                r#""freed_tokens":70},"revision":1099511627776,"epoch":0,"warnings":[]}"#
            )
        );
        assert_eq!(json.text("NoMessage", &response), None);
    }
}
