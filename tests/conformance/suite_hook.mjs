// Loaded before the conformance suite (`node --import`), for two things its command line does not offer:
// - it runs on Node 20, where `fs` has no `globSync`; the commands used here never call it;
// - with NAME_PREFIX and URI_PREFIX it calls every fixture by its name behind a prefixing endpoint. In the suite's
//   bundle those names are whole literals in backquotes, which prose never is.
import { register } from 'node:module';

const settings = {
  lacksGlobSync: Number(process.versions.node.split('.')[0]) < 22,
  namePrefix: process.env.NAME_PREFIX ?? '',
  uriPrefix: process.env.URI_PREFIX ?? '',
};

const hooks = `
const settings = ${JSON.stringify(settings)};
const isSuite = (url) => url?.endsWith('/conformance/dist/index.js');
const fs = "export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = undefined;";

export async function resolve(specifier, context, next) {
  if (settings.lacksGlobSync && specifier === 'fs' && isSuite(context.parentURL)) {
    return { shortCircuit: true, url: 'data:text/javascript,' + encodeURIComponent(fs) };
  }
  return next(specifier, context);
}

export async function load(url, context, next) {
  const loaded = await next(url, context);
  if (!isSuite(url)) return loaded;
  const quote = String.fromCharCode(96);
  const fixture = new RegExp(quote + '(test_[a-z0-9_]+|json_schema_2020_12_tool)' + quote, 'g');
  const source = loaded.source.toString()
    .replace(fixture, (_, name) => quote + settings.namePrefix + name + quote)
    .replaceAll(quote + 'test://', quote + settings.uriPrefix + 'test://');
  return { ...loaded, source };
}`;

register('data:text/javascript,' + encodeURIComponent(hooks));
