//! A model that works as an agent: it calls the first shell-like tool in each round, and answers at the end.

use serde_json::{Map, Value, json};

use crate::turn::{Call, Offered, Turn};

/// Names of tools that run a command.
const SHELLS: [&str; 9] = [
    "bash", "exec_command", "shell_command", "shell", "local_shell", "exec", "run_command",
    "execute_command", "run_shell_command",
];
/// The bytes of one line that a command prints.
const LINE_BYTES: u64 = 40;

/// One round of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The number of the round, from 1.
    pub number: u64,
    /// The size of the command's output, in bytes.
    pub output_bytes: u64,
}

/// Returns the first shell-like tool.
pub(crate) fn shell<'a, 'b>(tools: &'b [Offered<'a>]) -> Option<&'b Offered<'a>> {
    let is_shell = |tool: &&Offered<'_>| {
        let is_named = SHELLS
            .iter()
            .any(|shell| tool.name.eq_ignore_ascii_case(shell));
        is_named && tool.namespace.is_none()
    };
    tools.iter().find(is_shell)
}

/// Returns the turn of a round: a text and the call of the shell. Without a shell, the text alone.
pub(crate) fn turn(round: &Round, tools: &[Offered<'_>]) -> Turn {
    let number = round.number;
    let call = shell(tools).map(|tool| {
        let lines = round.output_bytes / LINE_BYTES + 1;
        // A line has the same length in each round, so that the output has the scripted size.
        let command = format!("seq -f 'round {number:06} line %08.0f of the output.' 1 {lines}");
        Call {
            namespace: None,
            name: tool.name.to_owned(),
            input: input(tool.schema, &command),
        }
    });
    Turn {
        thinking: format!("Round {number} needs the next part of the output."),
        text: format!("Running round {number}."),
        calls: call.into_iter().collect(),
        ..Turn::default()
    }
}

/// Returns the input for a shell with this schema. Other required fields get a value of their type.
fn input(schema: &Value, command: &str) -> Value {
    let fields = schema["properties"].as_object();
    let mut input = Map::new();
    let name = ["cmd", "command", "script", "input"]
        .into_iter()
        .find(|name| fields.is_some_and(|fields| fields.contains_key(*name)))
        .unwrap_or("command");
    // Some shells, such as an earlier one of Codex, take an argument list instead of a command line.
    let is_list = schema["properties"][name]["type"] == "array";
    let value = if is_list {
        json!(["bash", "-lc", command])
    } else {
        json!(command)
    };
    input.insert(name.to_owned(), value);
    for required in schema["required"].as_array().into_iter().flatten() {
        let Some(required) = required.as_str().filter(|name| !input.contains_key(*name)) else {
            continue;
        };
        let property = &schema["properties"][required];
        let value = match property["type"].as_str() {
            // Strict schemas require optional fields too.
            _ if is_nullable(property) => Value::Null,
            Some("boolean") => json!(false),
            Some("number" | "integer") => json!(1_000),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("Prints lines"),
        };
        input.insert(required.to_owned(), value);
    }
    Value::Object(input)
}

/// Returns true if a property can be null.
fn is_nullable(property: &Value) -> bool {
    let variants = property["anyOf"].as_array().into_iter().flatten();
    let types = property["type"].as_array().into_iter().flatten();
    let mut types = types.chain(variants.map(|variant| &variant["type"]));
    types.any(|name| name == "null")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Round, turn};
    use crate::turn::Offered;

    fn call(name: &str, schema: &Value) -> Option<Value> {
        let tools = [
            Offered::new("Read", &Value::Null),
            Offered::new(name, schema),
        ];
        let round = Round {
            number: 7,
            output_bytes: 4_000,
        };
        let turn = turn(&round, &tools);
        turn.calls.into_iter().next().map(|call| call.input)
    }

    #[test]
    fn a_shell_is_called_as_its_schema_requires() {
        let line = "seq -f 'round 000007 line %08.0f of the output.' 1 101";
        let schema = json!({"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]});
        assert_eq!(call("exec_command", &schema), Some(json!({"cmd": line})));
        let schema = json!({"properties": {"command": {"type": "array"}}});
        let list = json!({"command": ["bash", "-lc", line]});
        assert_eq!(call("shell", &schema), Some(list));
        let schema = json!({
            "properties": {"command": {"type": "string"}, "description": {"type": "string"}},
            "required": ["command", "description"],
        });
        let described = json!({"command": line, "description": "Prints lines"});
        assert_eq!(call("Bash", &schema), Some(described));
        let optional = json!({"anyOf": [{"type": "number"}, {"type": "null"}]});
        let schema = json!({
            "properties": {"command": {"type": "string"}, "timeout": optional, "cwd": {"type": ["string", "null"]}},
            "required": ["command", "timeout", "cwd"],
        });
        let strict = json!({"command": line, "timeout": null, "cwd": null});
        assert_eq!(call("bash", &schema), Some(strict));
        assert_eq!(call("Write", &schema), None);
    }
}
