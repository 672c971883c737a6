//! Batches of requests to models. A batch ends with the second request for it.

use std::collections::HashSet;

use axum::http::Method;
use serde_json::{Value, json};

use super::files::File;
use super::{Call, Reply, add, not_found};
use crate::anthropic;
use crate::billing::Charge;
use crate::credential::Credential;
use crate::openai;
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::state::State;
use crate::turn::Answer;

/// The progress of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Started,
    Canceled,
    Ended,
}

/// A stored batch.
pub(super) struct Batch {
    id: String,
    progress: Progress,
    /// The results, one per request, and the number of failed ones.
    results: Vec<Value>,
    failed: usize,
    /// The parameters of an OpenAI batch.
    params: Value,
    output_file: Option<String>,
}

impl Call<'_> {
    /// Answers a request for batches.
    pub(super) fn batches(&self, state: &mut State, path: &[&str]) -> Result<Reply, Refusal> {
        if let (&Method::POST, []) = (self.method(), path) {
            let batch = if self.is_anthropic() {
                self.messages_batch(state)?
            } else {
                self.openai_batch(state)?
            };
            let shown = self.batch(&batch);
            add(&mut state.resources.batches, batch);
            return Ok(Reply::Json(shown));
        }
        if let (&Method::GET, []) = (self.method(), path) {
            let batches = state.resources.batches.iter();
            let batches = batches.map(|batch| (batch.id.as_str(), self.batch(batch)));
            let batches: Vec<_> = batches.collect();
            return Ok(Reply::Json(self.page(&batches)?));
        }
        let id = path.first().copied().unwrap_or_default();
        let position = state.resources.batches.iter().position(|it| it.id == id);
        let position =
            position.ok_or_else(|| not_found(format!("No batch found with id '{id}'.")))?;
        match (self.method(), &path[1..]) {
            (&Method::GET, []) => {
                // The reply is built before the batch advances, so that the first poll sees it in progress.
                let shown = self.batch(&state.resources.batches[position]);
                self.advance(state, position);
                Ok(Reply::Json(shown))
            }
            (&Method::POST, ["cancel"]) => {
                let batch = &mut state.resources.batches[position];
                batch.progress = Progress::Canceled;
                Ok(Reply::Json(self.batch(batch)))
            }
            (&Method::GET, ["results"]) if self.is_anthropic() => {
                let batch = &state.resources.batches[position];
                if batch.progress != Progress::Ended {
                    return Err(not_found("The batch has no results yet."));
                }
                Ok(Reply::Content(
                    "application/x-jsonl",
                    lines(&batch.results).into(),
                ))
            }
            (&Method::DELETE, []) if self.is_anthropic() => {
                state.resources.batches.remove(position);
                Ok(Reply::Json(
                    json!({"id": id, "type": "message_batch_deleted"}),
                ))
            }
            _ => Err(not_found("Not found")),
        }
    }

    /// Ends a batch, so that the next request finds it ended.
    fn advance(&self, state: &mut State, position: usize) {
        let batch = &mut state.resources.batches[position];
        if batch.progress != Progress::Started {
            return;
        }
        batch.progress = Progress::Ended;
        if !self.is_anthropic() {
            let output = lines(&batch.results);
            let file = File::written(state, "output.jsonl", output);
            state.resources.batches[position].output_file = Some(file.id.clone());
            add(&mut state.resources.files, file);
        }
    }

    fn messages_batch(&self, state: &mut State) -> Result<Batch, Refusal> {
        let body: Value = serde_json::from_slice(&self.raw).unwrap_or_default();
        let requests = body["requests"].as_array().filter(|all| !all.is_empty());
        let requests = requests.ok_or_else(|| Refusal::invalid("requests: Field required"))?;
        let mut names = HashSet::new();
        let mut results = Vec::new();
        let mut failed = 0;
        for (index, request) in requests.iter().enumerate() {
            let name = request["custom_id"].as_str().unwrap_or_default();
            if name.is_empty() || !names.insert(name) {
                let at = format!("requests.{index}.custom_id");
                return Err(Refusal::invalid(format!("{at}: Input should be unique")));
            }
            let result = match self.message(state, &request["params"]) {
                Ok(message) => json!({"type": "succeeded", "message": message}),
                Err(refusal) => {
                    failed += 1;
                    let error = json!({"type": refusal.kind, "message": refusal.message});
                    let error = json!({"type": "error", "error": error, "request_id": null});
                    json!({"type": "errored", "error": error})
                }
            };
            results.push(json!({"custom_id": name, "result": result}));
        }
        Ok(Batch {
            id: state.id("msgbatch_"),
            progress: Progress::Started,
            results,
            failed,
            params: Value::Null,
            output_file: None,
        })
    }

    fn message(&self, state: &mut State, params: &Value) -> Result<Value, Refusal> {
        let plan = Plan::default();
        anthropic::check(&self.parts.headers, params, &plan)?;
        let answer = Answer::of(&plan, anthropic::prompt(params));
        let credential = Credential::of(&self.parts.headers);
        let charge = charge(&credential, params, &answer);
        Ok(anthropic::message(state, &charge, params, &answer))
    }

    fn openai_batch(&self, state: &mut State) -> Result<Batch, Refusal> {
        let body: Value = serde_json::from_slice(&self.raw).unwrap_or_default();
        if body["completion_window"] != "24h" {
            let refusal = Refusal::invalid("Invalid value for 'completion_window'.");
            return Err(refusal.param("completion_window"));
        }
        // This provider runs batches of Chat Completions only.
        if body["endpoint"] != "/v1/chat/completions" {
            return Err(Refusal::invalid("Invalid value for 'endpoint'.").param("endpoint"));
        }
        let mut files = state.resources.files.iter();
        let input = files.find(|file| body["input_file_id"] == *file.id && file.purpose == "batch");
        let input = input.ok_or_else(|| not_found("No such File object"))?;
        let input = String::from_utf8_lossy(&input.bytes).into_owned();
        let mut results = Vec::new();
        let mut failed = 0;
        for line in input.lines() {
            let request: Value = serde_json::from_str(line)
                .map_err(|_| Refusal::invalid("The input file has a line without JSON."))?;
            let (status, body) = match self.completion(state, &request["body"]) {
                Ok(completion) => (200, completion),
                Err(refusal) => {
                    failed += 1;
                    let error = json!({"type": refusal.kind, "message": refusal.message});
                    (refusal.status, json!({"error": error}))
                }
            };
            let response = json!({
                "status_code": status, "request_id": state.id("req_"), "body": body,
            });
            results.push(json!({
                "id": state.id("batch_req_"), "custom_id": request["custom_id"],
                "response": response, "error": null,
            }));
        }
        Ok(Batch {
            id: state.id("batch_"),
            progress: Progress::Started,
            results,
            failed,
            params: body,
            output_file: None,
        })
    }

    fn completion(&self, state: &mut State, params: &Value) -> Result<Value, Refusal> {
        let plan = Plan::default();
        openai::check(params, &plan)?;
        let answer = Answer::of(&plan, openai::prompt(params));
        let credential = Credential::of(&self.parts.headers);
        let charge = charge(&credential, params, &answer);
        Ok(openai::completion(state, &charge, params, &answer))
    }

    fn batch(&self, batch: &Batch) -> Value {
        let has_ended = batch.progress == Progress::Ended;
        let total = batch.results.len();
        let ended = |count: usize| if has_ended { count } else { 0 };
        if !self.is_anthropic() {
            let status = match batch.progress {
                Progress::Started => "validating",
                Progress::Canceled => "cancelling",
                Progress::Ended => "completed",
            };
            return json!({
                "id": batch.id, "object": "batch", "endpoint": batch.params["endpoint"],
                "input_file_id": batch.params["input_file_id"], "status": status, "errors": null,
                "completion_window": "24h", "created_at": self.time(),
                "output_file_id": batch.output_file, "error_file_id": null,
                "metadata": batch.params["metadata"],
                "request_counts": {
                    "total": total, "completed": ended(total - batch.failed),
                    "failed": ended(batch.failed),
                },
            });
        }
        let status = match batch.progress {
            Progress::Started => "in_progress",
            Progress::Canceled => "canceling",
            Progress::Ended => "ended",
        };
        // The address is that of the provider, as in the provider's own responses.
        let host = self.parts.headers.get("host");
        let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
        let results = format!("http://{host}/v1/messages/batches/{}/results", batch.id);
        json!({
            "id": batch.id, "type": "message_batch", "processing_status": status,
            "request_counts": {
                // Until a batch ends, all its requests count as in progress.
                "processing": total - ended(total), "succeeded": ended(total - batch.failed),
                "errored": ended(batch.failed), "canceled": 0, "expired": 0,
            },
            "created_at": self.time(), "expires_at": self.time(), "archived_at": null,
            "ended_at": has_ended.then(|| self.time()),
            "cancel_initiated_at": (batch.progress == Progress::Canceled).then(|| self.time()),
            "results_url": has_ended.then_some(results),
        })
    }
}

fn charge<'a>(credential: &'a Credential, params: &'a Value, answer: &Answer) -> Charge<'a> {
    Charge {
        credential,
        model: params["model"].as_str().unwrap_or_default(),
        // A batch is not cached, so its time has no effect.
        now: std::time::Duration::ZERO,
        output: answer.tokens(),
    }
}

fn lines(values: &[Value]) -> String {
    let mut lines = String::new();
    for value in values {
        lines.push_str(&value.to_string());
        lines.push('\n');
    }
    lines
}
