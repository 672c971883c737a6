//! Content that a provider would reject, and its repairs.

use expect_test::expect;

use crate::world::check;

#[test]
fn orphaned_duplicate_and_blank_blocks_are_repaired() {
    check(
        "user: go; blank
         assistant: call a
         user: result a 1; result a 2; result zz 3",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
              {"type":"text","text":"[Result of a tool call that is not shown]\n3"}
            repair 1.1: BlankText
            repair 3.1: DuplicateResult(c0)
            repair 3.2: OrphanResult
        "#]],
    );
}

#[test]
fn a_reused_id_is_mapped_and_stays_mapped() {
    check(
        "user: go
         assistant: call a
         user: result a 1
         ----
         assistant: call a
         user: result a 2",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
            assistant
              {"type":"tool_use","id":"palimpsest_c1","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"palimpsest_c1","content":"2"}
            repair 4.0: MappedCallId(c1)
        "#]],
    );
}

#[test]
fn a_leading_assistant_message_gets_an_opening_user_message() {
    check(
        "assistant: hello
         user: hi",
        expect![[r#"
            user
              {"type":"text","text":"[The conversation begins with the assistant.]"}
            assistant
              {"type":"text","text":"hello"}
            user
              {"type":"text","text":"hi"}
            repair 1.0: Opening
        "#]],
    );
}
