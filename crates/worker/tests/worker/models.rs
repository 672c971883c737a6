//! A model writes session memory. If the model fails, the worker writes it without one.

use std::sync::Mutex;

use async_trait::async_trait;
use palimpsest_worker::{MemoryPrompt, MemoryReply, MemoryWriteError, MemoryWriter};

use super::*;

/// A model with a fixed answer.
struct Model {
    answer: Result<&'static str, &'static str>,
    asked: Mutex<Vec<MemoryPrompt>>,
}

#[async_trait]
impl MemoryWriter for Model {
    async fn write(&self, ask: MemoryPrompt) -> Result<MemoryReply, MemoryWriteError> {
        self.asked.lock().unwrap().push(ask);
        let written = |text: &str| MemoryReply {
            text: text.to_owned(),
            truncated: false,
        };
        self.answer
            .map(written)
            .map_err(|why| MemoryWriteError(why.into()))
    }
}

fn model(answer: Result<&'static str, &'static str>) -> Arc<Model> {
    Arc::new(Model {
        answer,
        asked: Mutex::default(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_model_writes_the_sections_that_changed() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    let model = model(Ok(
        "# Current State\nAll is mended, says the model with hunter2.",
    ));
    let worker = fake
        .worker(options())
        .with_writer(Arc::clone(&model) as Arc<dyn MemoryWriter>);
    let running = start(worker.with_redact(|text| text.replace("hunter2", "[redacted]")));
    until("written", || fake.author(&key) == Some(Author::Model)).await;
    let text = fake.text(&key);
    assert!(
        text.contains("All is mended, says the model with [redacted]."),
        "{text}"
    );
    assert!(text.contains("# Worklog\n_"), "the headings must be kept");
    let asked = model.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].prompt.contains("Mend a.") && asked[0].prompt.contains("<notes>"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn session_memory_is_updated_despite_any_model_failure() {
    let wrongs = [
        Err("the provider is overloaded"),
        Ok(""),
        Ok("I'm sorry, but I cannot help with that."),
        Ok("Here you are: all is well."),
        Ok("# Current State\nTBD\n\n# Task specification\nN/A"),
    ];
    for wrong in wrongs {
        let fake = Fake::new();
        let key = fake.due("p/a").await;
        let running = start(fake.worker(options()).with_writer(model(wrong)));
        until("written", || is_written(&fake, &key)).await;
        assert!(fake.text(&key).contains("Mend a."), "{wrong:?}");
        assert_eq!(
            (running.stats.updates(), running.stats.failures()),
            (1, 1),
            "{wrong:?}"
        );
        running.stop().await;
    }
}
