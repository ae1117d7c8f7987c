// Questions to the server, answered line by line: how far it is, and at last the answer.

/** What the server said instead of an answer; its status, 0 where it said nothing. */
export class Refused extends Error {
  /** @param {string} line @param {number} [status] */
  constructor(line, status = 0) {
    super(line);
    this.status = status;
  }
}

const BUSY = 503, WAITS = [200, 400, 800, 1600];        // milliseconds before a busy server is asked again

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

/** A step on the way to an answer: an AbortError stays one, whatever else went wrong is refused with this line.
 *  @template T @param {Promise<T>} step @param {AbortSignal} signal @param {string} line @returns {Promise<T>} */
const orRefused = (step, signal, line) => step.catch(error => { throw signal.aborted ? error : new Refused(line); });

/** The last line of an answer; the others tell how far it is.
 *  @param {ReadableStream<Uint8Array>} body @param {(line: string, part: number|null) => void} tell */
async function lastOf(body, tell) {
  let last = null;
  for await (const line of lines(body)) {
    last = JSON.parse(line);
    if (!last.progress) continue;
    const [done, total, what] = last.progress;
    tell(`${what} ${done}${total ? ` of ${total}` : ""} …`, total ? done / total : null);
  }
  return last;
}

/**
 * Ask one route for its answer. Raises Refused with the server's line; AbortError where the signal says so.
 * @param {string} name of the function @param {any} body its arguments @param {AbortSignal} signal
 * @param {(line: string, part: number|null) => void} tell how far it is, in words and as a part of 1
 */
export async function ask(name, body, signal, tell) {
  const headers = { "content-type": "application/json", accept: "application/x-ndjson" };
  const response = await orRefused(fetch(`/api/${name}`, { method: "POST", signal, body: JSON.stringify(body), headers }),
    signal, "The server does not answer. Is it still running?");
  if (!response.ok) {
    const { error } = await orRefused(response.json(), signal, `The server answered ${response.status} and nothing more.`);
    throw new Refused(error, response.status);
  }
  const last = await orRefused(lastOf(response.body, tell), signal, "The server broke off. Is it still running?");
  if (last?.error) throw new Refused(last.error, last.status);
  if (!last || last.progress) throw new Refused("The server broke off.");
  return last.result;
}

/** The same, asking again a few times while the server is busy with others. @type {typeof ask} */
export async function askPatiently(name, body, signal, tell) {
  for (const wait of WAITS) {
    try {
      return await ask(name, body, signal, tell);
    } catch (error) {
      if (error.status !== BUSY) throw error;
    }
    tell("The server is busy with other requests; waiting …", null);
    await new Promise(done => setTimeout(done, wait));
    signal.throwIfAborted();
  }
  return ask(name, body, signal, tell);
}
