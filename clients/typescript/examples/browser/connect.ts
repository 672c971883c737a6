// The page calls the services of the contract with Connect. To build `connect.js`, install `@connectrpc/connect-web`,
// `@bufbuild/protobuf`, `@bufbuild/buf` and `@bufbuild/protoc-gen-es`, and run in this folder:
//
//   npx buf generate REPOSITORY --path REPOSITORY/proto/palimpsest/context
//   npx esbuild connect.ts --bundle --format=esm --outfile=connect.js
//
// Any other bundler for TypeScript builds it too. The parameter `server` of the page is the URL of the server, and
// `http.allowed_origins` of the server contains the origin of the page.

import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { ContextService } from "./gen/palimpsest/context/v1/context_service_pb.js";
import { Format } from "./gen/palimpsest/context/v1/message_pb.js";
import { SessionService } from "./gen/palimpsest/context/v1/session_service_pb.js";
import { Provider } from "./gen/palimpsest/context/v1/view_pb.js";

const parameters = new URLSearchParams(location.search);
const baseUrl = parameters.get("server") ?? "http://127.0.0.1:50051";
const session = `projects/demo/sessions/${parameters.get("session") ?? "page"}`;
const target = { provider: Provider.OPENAI, model: "gpt-5" };
const messages: object[] = [];

const element = (id: string) => document.getElementById(id) as HTMLInputElement & HTMLSelectElement;

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  messages.push({ role: "user", content: element("text").value });
  send().catch((error) => {
    element("state").textContent = String(error);
  });
});

async function send(): Promise<void> {
  const isConnect = element("protocol").value === "Connect";
  const transport = isConnect ? createConnectTransport({ baseUrl }) : createGrpcWebTransport({ baseUrl });
  const contexts = createClient(ContextService, transport);
  const sessions = createClient(SessionService, transport);

  // The whole conversation, as for the packages. The session is created on its first call.
  const json = new TextEncoder().encode(JSON.stringify(messages));
  const synced = await contexts.syncContext({
    session,
    target,
    payload: { format: Format.OPENAI_CHAT, json },
  });
  // The view of the session, without new messages.
  const prepared = await contexts.prepareContext({ session, target });
  // The same view as a stream, for views that exceed the size of a reply.
  let streamed = 0;
  for await (const chunk of contexts.streamContext({ session, etag: prepared.etag })) {
    streamed += chunk.messagesJson.length;
  }
  const missing = await sessions.getSession({ session: `${session}-missing` }).catch(ConnectError.from);
  const code = missing instanceof ConnectError ? Code[missing.code] : "";
  element("state").textContent =
    `synced ${synced.context?.viewMessages}, prepared ${prepared.viewMessages}, streamed ${streamed}, missing ${code}`;

  if (messages.length > 1) return;
  for await (const { event } of sessions.watchSession({ session, afterRevision: 0n })) {
    if (!event) continue;
    const entry = document.createElement("li");
    entry.textContent = `${event.revision} ${event.event.case}`;
    element("events").append(entry);
  }
}
