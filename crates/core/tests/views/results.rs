//! Tool calls and their results: in order, late and missing.

use expect_test::expect;

use palimpsest_core::view::Provider;

use crate::world::{check, show_for};

#[test]
fn results_precede_text_in_a_user_message() {
    // The reminder arrives before the result, and providers require results before text.
    check(
        "user: go
         assistant: call a
         meta: a reminder
         user: result a 1",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"text","text":"a reminder"}
        "#]],
    );
}

#[test]
fn text_waits_for_results_missing_from_the_served_view() {
    // A reminder is no user input, so it does not interrupt the open call.
    check(
        "user: go
         assistant: call a; call b
         user: result a 1
         ----
         meta: a reminder
         ----
         user: result b 2",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
              {"type":"tool_use","id":"b","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"tool_result","tool_use_id":"b","content":"2"}
              {"type":"text","text":"a reminder"}
        "#]],
    );
}

#[test]
fn an_open_call_is_not_sendable_until_user_input_interrupts_it() {
    // No input follows the call, so its result is probably in transit.
    check(
        "user: go
         assistant: call a",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            open: [c0]
        "#]],
    );
    // A person has written, so the model must continue without the result.
    check(
        "user: go
         assistant: call a
         user: stop, do this instead",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"[Interrupted: the conversation went on before this tool returned a result.]","is_error":true}
              {"type":"text","text":"stop, do this instead"}
            repair 3.0: InterruptedCall(c0)
        "#]],
    );
    // The caller requests a view without open calls.
    check(
        "user: go
         assistant: call a
         interrupt",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"[Interrupted: the conversation went on before this tool returned a result.]","is_error":true}
            repair 2.0: InterruptedCall(c0)
        "#]],
    );
}

#[test]
fn a_late_result_is_shown_once_as_text() {
    // The interruption is sealed, so the first result follows as text. The second one is a duplicate of it.
    check(
        "user: go
         assistant: call a
         user: stop
         ----
         assistant: as you like
         user: result a 42
         user: result a 42",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"[Interrupted: the conversation went on before this tool returned a result.]","is_error":true}
              {"type":"text","text":"stop"}
            assistant
              {"type":"text","text":"as you like"}
            user
              {"type":"text","text":"[Late result of the interrupted tool call a]\n42"}
            repair 3.0: InterruptedCall(c0)
            repair 6.0: DuplicateResult(c0)
            repair 5.0: LateResult(c0)
        "#]],
    );
}

#[test]
fn a_late_result_names_the_call_id_that_the_view_shows() {
    // Anthropic accepts ids of 64 characters, and Chat Completions of 40.
    let id = "a".repeat(41);
    let conversation = format!(
        "user: go
         assistant: call {id}
         user: stop
         ----
         assistant: as you like
         user: result {id} 42"
    );
    for (provider, shown) in [
        (Provider::Anthropic, &*id),
        (Provider::OpenAiResponses, &*id),
        (Provider::OpenAi, "palimpsest_c0"),
    ] {
        let view = show_for(provider, "m", &conversation);
        let late = format!("[Late result of the interrupted tool call {shown}]");
        assert!(view.contains(&late), "{view}");
    }
}
