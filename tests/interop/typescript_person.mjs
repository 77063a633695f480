// Whoever stands behind a client of the TypeScript SDKs.

/** What a question starts with when nobody shall answer it. */
export const UNANSWERED = 'nobody answers';

/** Answers what servers ask, each answer naming its question; after `expect`, only once so many are open at once. */
export class Person {
  #missing = 0;
  #waiting = [];
  #interrupted = 0;
  #interruptions = [];

  expect(count) {
    this.#missing = count;
  }

  /** Resolves when so many questions more were taken back. */
  takenBack(count) {
    if (count === 0) return Promise.resolve();
    const wanted = this.#interrupted + count;
    return new Promise((resolve) => this.#interruptions.push({ wanted, resolve }));
  }

  async answer(method, params, { signal, report }) {
    const message = method === 'sampling/createMessage' ? params.messages[0].content.text : params?.message ?? '';
    if (message.startsWith(UNANSWERED)) await this.#untilTakenBack(signal);
    await this.#allAreHere();
    await report(1, 2);
    if (method === 'roots/list') return { roots: [{ uri: 'file:///srv/project', name: 'project' }] };
    if (method === 'sampling/createMessage') {
      return { role: 'assistant', model: 'none', content: { type: 'text', text: `re ${message}` } };
    }
    return params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: { name: `re ${message}` } };
  }

  async #allAreHere() {
    this.#missing -= 1;
    if (this.#missing > 0) await new Promise((resolve) => this.#waiting.push(resolve));
    else this.#waiting.splice(0).forEach((resolve) => resolve());
  }

  async #untilTakenBack(signal) {
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    this.#interrupted += 1;
    this.#interruptions.filter(({ wanted }) => wanted <= this.#interrupted).forEach(({ resolve }) => resolve());
  }
}
