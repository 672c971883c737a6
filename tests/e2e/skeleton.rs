//! Tests that appended and served data is equal byte for byte after a crash.

use palimpsest_tests::say::{append, assistant_call, prepare, result, user};
use palimpsest_tests::{Array, Server, name};

async fn appended(server: &Server) -> Array {
    let mut client = server.context().await;
    let messages = vec![user("hello"), assistant_call("t1"), result("t1", "found")];
    client
        .append_messages(append(&name("s"), messages))
        .await
        .unwrap();
    served(server).await
}

async fn served(server: &Server) -> Array {
    let mut client = server.context().await;
    let reply = client
        .prepare_context(prepare(&name("s"), Vec::new()))
        .await;
    let mut array = Array::default();
    array.take(&reply.unwrap().into_inner());
    array
}

#[tokio::test]
async fn a_view_is_the_same_after_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let before = appended(&server).await;
    assert_eq!(before.messages.len(), 3);
    server.stop();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(served(&server).await, before);
}

#[tokio::test]
async fn a_view_is_the_same_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let before = appended(&server).await;
    server.kill();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(served(&server).await, before);
}
