// Questions to the server: one at a time of a kind, with progress, each cancelled by the next.

/** What the server said instead of an answer. */
export class Refused extends Error {}

/** The lines of a stream of text, as they come. @param {ReadableStream<Uint8Array>} body */
async function* lines(body) {
  const reader = body.getReader(), decoder = new TextDecoder();
  let rest = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = decoder.decode(value, { stream: true }).split("\n");
    if (parts.length > 1) {
      yield rest.join("") + parts[0];
      yield* parts.slice(1, -1);
      rest = [];
    }
    rest.push(parts[parts.length - 1]);
  }
  if (rest.join("")) yield rest.join("");
}

/**
 * Ask one route for its answer. Raises Refused with the server's line; AbortError where the signal says so.
 * @param {string} name of the function @param {any} body its arguments @param {AbortSignal} signal
 * @param {(done: number, total: number|null, what: string) => void} [progress]
 */
export async function ask(name, body, signal, progress = () => {}) {
  let response;
  try {
    response = await fetch(`/api/${name}`, { method: "POST", signal, body: JSON.stringify(body),
      headers: { "content-type": "application/json", accept: "application/x-ndjson" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer. Is it still running?");
  }
  if (!response.ok) throw new Refused((await response.json()).error);
  let last = null;
  for await (const line of lines(response.body)) {
    if (!line) continue;
    last = JSON.parse(line);
    if (last.progress) progress(...last.progress);
  }
  if (last?.error) throw new Refused(last.error);
  if (!last || last.progress) throw new Refused("The server broke off.");
  return last.result;
}

/** Ask again a few times while the server is busy with others. */
export async function askPatiently(name, body, signal, progress) {
  for (let wait = 200; ; wait *= 2) {
    try {
      return await ask(name, body, signal, progress);
    } catch (error) {
      if (!(error instanceof Refused) || !error.message.startsWith("busy") || wait > 2000) throw error;
      await new Promise(done => setTimeout(done, wait));
      if (signal.aborted) throw new DOMException("cancelled", "AbortError");
    }
  }
}
