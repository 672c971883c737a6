//! Fragments of one response that were appended as separate messages.

use expect_test::expect;

use crate::world::check;

#[test]
fn fragments_of_one_response_become_one_message() {
    // A result arrives between two fragments. The provider gets one message with both calls, and the results after it.
    check(
        "user: go
         assistant#r: thinks hm
         assistant#r: call a
         user: result a 1
         assistant#r: call b
         user: result b 2",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"thinking","thinking":"hm","signature":"s"}
              {"type":"tool_use","id":"a","name":"t","input":{}}
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"tool_result","tool_use_id":"b","content":"2"}
        "#]],
    );
}

#[test]
fn a_fragment_after_a_served_view_starts_a_new_message() {
    // The first fragment was served with its result and is sealed, so the next one cannot join its message.
    check(
        "user: go
         assistant#r: call a
         user: result a 1
         ----
         assistant#r: call b
         user: result b 2",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
            assistant
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"b","content":"2"}
        "#]],
    );
}

#[test]
fn a_fragment_waits_while_calls_of_its_response_are_open() {
    // `b` is open, and a provider accepts no further call before its result. The fragment stays pending.
    check(
        "user: go
         assistant#r: call a; call b
         user: result a 1
         ----
         assistant#r: call c",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
            open: [c1]
        "#]],
    );
    // The result of `b` completes the first message, so the fragment follows as a message of its own.
    check(
        "user: go
         assistant#r: call a; call b
         user: result a 1
         ----
         assistant#r: call c
         ----
         user: result b 2
         user: result c 3",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"tool_result","tool_use_id":"b","content":"2"}
            assistant
              {"type":"tool_use","id":"c","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"c","content":"3"}
        "#]],
    );
}
