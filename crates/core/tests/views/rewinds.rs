//! Views after a rewind.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_rewind_removes_later_messages() {
    // The call and its result stay, so only the response after them is replaced.
    check(
        "user: go
         assistant: call a
         user: result a 1
         assistant: wrong
         ----
         rewind 3
         assistant: right
         user: yes",
        expect![[r#"
            user
              {"type":"text","text":"go"}
            assistant
              {"type":"tool_use","id":"a","name":"t","input":{}}
            user
              {"type":"tool_result","tool_use_id":"a","content":"1"}
            assistant
              {"type":"text","text":"right"}
            user
              {"type":"text","text":"yes"}
        "#]],
    );
    // Messages are numbered from 1, so `rewind 0` removes all of them.
    check(
        "user: go
         ----
         rewind 0
         user: go elsewhere",
        expect![[r#"
            user
              {"type":"text","text":"go elsewhere"}
        "#]],
    );
}
