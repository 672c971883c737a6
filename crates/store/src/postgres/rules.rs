//! The rules that keep each statement about a session on one node of a distributed database. They need no database.

use super::distribution::FUNCTIONS;
use super::part_statements::{PartStatements, Tables};
use super::schema;
use super::statements::Statements;

/// A function of the schema.
struct Function<'a> {
    name: &'a str,
    parameters: &'a str,
    body: &'a str,
}

fn functions(text: &str) -> Vec<Function<'_>> {
    let all = text.split("CREATE FUNCTION s.").skip(1);
    let parts = all.map(|text| {
        let (name, rest) = text.split_once('(').unwrap();
        let (parameters, rest) = rest.split_once(')').unwrap();
        let body = rest.split("$function$").nth(1).unwrap();
        Function {
            name,
            parameters: parameters.trim(),
            body,
        }
    });
    parts.collect()
}

/// Returns the text without its comments and with single spaces.
fn normal(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("--").next().unwrap());
    let words = lines.flat_map(str::split_whitespace);
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the statements of a function that read or change tables, without their targets in variables.
fn statements(body: &str) -> Vec<String> {
    let text = normal(body);
    let all = text.split(';').filter_map(|part| {
        let from = [
            "INSERT INTO", "UPDATE ", "DELETE FROM", "SELECT ", "PERFORM ",
        ];
        let start = from.iter().filter_map(|word| part.find(word)).min()?;
        let statement = part[start..].to_owned();
        statement.contains("s.").then_some(statement)
    });
    all.collect()
}

const SCHEMA_TABLES: [&str; 6] = [
    "s.sessions", "s.frames", "s.snapshots", "s.intents", "s.tips", "s.duties",
];

#[test]
fn every_function_is_known_and_takes_the_key_first() {
    let text = schema::print_for_rules("s");
    let found = functions(&text);
    let names: Vec<_> = found.iter().map(|function| function.name).collect();
    assert_eq!(names, FUNCTIONS);
    for function in &found {
        assert!(
            function.parameters.starts_with("of_key text"),
            "{}",
            function.name
        );
    }
}

#[test]
fn every_change_requests_a_durable_commit() {
    let text = schema::print_for_rules("s");
    for function in functions(&text) {
        let begin = normal(function.body.split("BEGIN").nth(1).unwrap());
        assert!(
            begin.starts_with(
                "IF current_setting('synchronous_commit') IN ('off', 'local') THEN \
                 PERFORM set_config('synchronous_commit', 'on', true); END IF;"
            ),
            "{}",
            function.name
        );
    }
    // All other statements only read. A lost canary does no harm, so it needs no durable commit.
    for (name, text) in Statements::new("s").all() {
        let changes = ["INSERT", "UPDATE", "DELETE"];
        let is_change = changes.iter().any(|word| text.contains(word));
        assert_eq!(is_change, name == "canary", "{name}");
    }
}

/// Citus refuses such statements, or runs them as two-phase commits of several nodes.
#[test]
fn the_statements_of_functions_can_be_routed_to_one_node() {
    let text = schema::print_for_rules("s");
    let mut number_of = 0;
    for function in functions(&text) {
        for statement in statements(function.body) {
            number_of += 1;
            let context = format!("{}: {statement}", function.name);
            let tables = SCHEMA_TABLES.iter();
            let tables = tables.filter(|table| statement.contains(**table)).count();
            assert_eq!(tables, 1, "{context}");
            let names_key = ["key = of_key", "VALUES (of_key,"];
            assert!(
                names_key.iter().any(|it| statement.contains(it)),
                "{context}"
            );
            for word in [
                "WITH ", "clock_timestamp", "now()", "random()", "set_config", "nextval", "EXISTS",
            ] {
                assert!(!statement.contains(word), "{context}");
            }
            if statement.starts_with("INSERT") {
                assert!(!statement.contains("SELECT"), "{context}");
            }
            // `excluded` and parameters are constants of the row.
            if let Some((_, updates)) = statement.split_once("DO UPDATE SET") {
                let updates = updates.split("WHERE").next().unwrap();
                for update in updates.split(',') {
                    let (_, value) = update.split_once('=').unwrap();
                    assert!(value.trim().starts_with("excluded."), "{context}");
                }
            }
        }
    }
    assert!(number_of > 20, "only {number_of} statements were found");
}

/// The statements outside of functions, except those of the canary and of the start, name one session.
#[test]
fn the_other_statements_name_one_session_or_one_node() {
    let outside = [
        "confirm", "store_id", "canary", "node_canary", "unsafe_settings",
    ];
    for (name, text) in Statements::new("s").all() {
        assert!(!text.contains('{'), "{name}");
        let is_call = text.starts_with("SELECT s.") && text.contains("($1");
        let names_key = text.contains("key = $1");
        assert!(
            is_call || names_key || outside.contains(&name),
            "{name}: {text}"
        );
        // Each use of a table has a condition on the key of the session.
        let uses = SCHEMA_TABLES
            .iter()
            .map(|table| text.matches(table).count());
        let uses: usize = uses.sum();
        let conditions = text.matches("key = $1").count();
        assert!(
            is_call || outside.contains(&name) || uses == conditions,
            "{name}"
        );
    }
    let tables = |shard: u32| Tables {
        sessions: format!("s.sessions_{shard}"),
        intents: format!("s.intents_{shard}"),
        tips: format!("s.tips_{shard}"),
    };
    for (name, text) in PartStatements::new(&[tables(1), tables(2)]).all() {
        assert!(!text.contains('{'), "{name}");
        // The table that all nodes share is never named.
        for table in SCHEMA_TABLES {
            assert!(
                !text.replace(&format!("{table}_"), "").contains(table),
                "{name}"
            );
        }
        assert_eq!(
            text.matches("_1").count(),
            text.matches("_2").count(),
            "{name}"
        );
    }
}
