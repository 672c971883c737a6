//! Tests that each statement about a session needs one part of hash-partitioned tables only, in plan and at run time. The
//! database distributes such tables within one machine by the same hash as Citus over several.

use std::collections::BTreeSet;

use palimpsest_test_servers::Cluster;

use super::distribution::DISTRIBUTED;
use super::schema;
use super::statements::Statements;

/// Statements without the rows of a session: `rules` names the reasons.
const OTHERS: [&str; 5] = [
    "confirm", "store_id", "canary", "node_canary", "unsafe_settings",
];

/// Makes the schema `s`, and a schema `p` with partitioned tables and the same functions.
fn partitioned() -> Cluster {
    let cluster = Cluster::start();
    cluster.psql("CREATE SCHEMA s; CREATE SCHEMA p");
    cluster.psql(&schema::print_for_rules("s"));
    for (table, column) in DISTRIBUTED {
        cluster.psql(&format!(
            "CREATE TABLE p.{table} (LIKE s.{table} INCLUDING ALL) PARTITION BY HASH ({column})"
        ));
        for part in 0..4 {
            cluster.psql(&format!(
                "CREATE TABLE p.{table}_part{part} PARTITION OF p.{table}
                 FOR VALUES WITH (MODULUS 4, REMAINDER {part})"
            ));
        }
    }
    let text = schema::print_for_rules("p");
    let functions = text.split("CREATE FUNCTION").skip(1).map(|function| {
        let (function, _) = function.split_once("$function$;").unwrap();
        format!("CREATE FUNCTION{function}$function$;\n")
    });
    cluster.psql(&functions.collect::<String>());
    cluster
}

/// Returns the numbers of all partitions that a text names.
fn parts(text: &str) -> BTreeSet<char> {
    let names = text.split("_part").skip(1);
    names.filter_map(|rest| rest.chars().next()).collect()
}

#[test]
fn every_read_of_a_session_is_planned_for_one_part() {
    let cluster = partitioned();
    let statements = Statements::new("p");
    for (name, text) in statements.all() {
        // Calls are tested below.
        if OTHERS.contains(&name) || text.starts_with("SELECT p.") {
            continue;
        }
        let mut text = text.replace("ANY($2)", "ANY('{1}')").replace("$1", "'p!a'");
        for number in 2..9 {
            text = text.replace(&format!("${number}"), "'1'");
        }
        let plan = cluster.psql(&format!("EXPLAIN {text}"));
        assert_eq!(parts(&plan).len(), 1, "{name}: {plan}");
    }
}

#[test]
fn every_change_of_a_session_locks_one_part() {
    let cluster = partitioned();
    let calls = [
        "declare_intents('p!a', '{f,g}', 5)",
        "append_events('p!a', 7, 0, 0, 11, 1, 'abc', 0, 's', true, 5, '{f,g}', 'p', 'scope', '{aa,bb}', 'p!c')",
        "append_events('p!a', 7, 1, 11, 12, 1, 'abc', 0, 's', false, NULL, NULL, NULL, NULL, NULL, 'p!c')",
        "append('p!b', 7, 0, 0, 11, 1, 'abc', 0, 's', false, NULL, NULL, NULL, NULL, NULL)",
        "put_snapshot('p!a', 7, 2, 12, 'snapshot')",
        "claim('p!a', 'me', NULL, 1000, 3600000, 300000)",
        "release('p!a', 'me', true, 77)",
        "declare_intents('p!a', '{h}', 5)",
        "revoke_intent('p!a', 'h', 6)",
        "complete_intent('p!a', 'h')",
        "delete_session('p!a', 7, 2, 12, 99)",
        "claim_removal('p!a', 7, 'me', NULL, 1000, 3600000)",
        "forget('p!a', 7, 'me', 512)",
        "claim_leader_task('sweep', 'me', NULL, 1000)",
    ];
    for function in super::distribution::FUNCTIONS {
        assert!(
            calls.iter().any(|call| call.starts_with(function)),
            "{function}"
        );
    }
    for call in calls {
        let locked = cluster.psql(&format!(
            "SET plan_cache_mode = force_custom_plan; BEGIN; SELECT p.{call};
             SELECT string_agg(DISTINCT relation::regclass::text, ' ') FROM pg_locks
             WHERE relation::regclass::text ~ '^p[.].*_part[0-9]$';
             COMMIT"
        ));
        // The answer of `declare_intents` is null, and the output has no first line then.
        let (answer, locked) = locked.rsplit_once('\n').unwrap_or(("", &locked));
        assert!(matches!(answer, "t" | ""), "{call}: {answer}");
        assert_eq!(parts(locked).len(), 1, "{call}: {locked}");
    }
}

#[test]
fn keys_have_the_hash_of_the_database() {
    let cluster = Cluster::start();
    let keys: Vec<_> = (0..200_usize)
        .map(|number| format!("p!{}{number}", "name-".repeat(number % 17)))
        .collect();
    let rows = keys.iter().map(|key| format!("('{key}')"));
    let rows = rows.collect::<Vec<_>>().join(",");
    let hashes = cluster.psql(&format!(
        "SELECT hashtext(key COLLATE \"C\") FROM (VALUES {rows}) AS keys(key)"
    ));
    let hashes: Vec<i32> = hashes.lines().map(|line| line.parse().unwrap()).collect();
    let own: Vec<_> = keys.iter().map(|key| super::shard_map::hash(key)).collect();
    assert_eq!(own, hashes);
}
