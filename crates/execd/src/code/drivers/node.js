// The JavaScript side of a code context: runs cells one after another in one global scope.
//
// Started by execd as `node -e <this file> -- <commands> <frames>`, two sockets on which frames go
// that README.md specifies: commands come on the first, whenever the event loop runs, and
// everything else goes on the second, which blocks. execd has already turned each cell into a plain
// script (types stripped, imports rewritten, declarations lifted to the global scope): it
// evaluates to a function, async where the cell awaits, that returns [value] when the cell ends
// with an expression and [] otherwise. Output goes to descriptors 1 and 2 as always. Unlike
// Python's, the frame Q carries text, which comes back on the second socket.
//
// Deliberately not here: any parsing or rewriting of the user's code.
'use strict';
(() => {
  const fs = require('fs');
  const net = require('net');
  const util = require('util');
  const vm = require('vm');
  const path = require('path');
  const { createRequire } = require('module');

  const [commands, frames] = process.argv.slice(-2).map(Number);
  process.argv.length = 1;
  let count = 0;
  let current = null; // The cell that runs, when there is one.
  let refusePrompt = null; // Ends a prompt that waits, when there is one.

  const encode = (kind, fields) => {
    const parts = [Buffer.from(kind)];
    for (const field of fields) {
      const bytes = Buffer.from(String(field));
      const size = Buffer.alloc(4);
      size.writeUInt32BE(bytes.length);
      parts.push(size, bytes);
    }
    const body = Buffer.concat(parts);
    const size = Buffer.alloc(4);
    size.writeUInt32BE(body.length);
    return Buffer.concat([size, body]);
  };

  // Frames leave in order and at once, also while user code never yields.
  const send = (kind, ...fields) => {
    const data = encode(kind, fields);
    try {
      for (let at = 0; at < data.length; ) at += fs.writeSync(frames, data, at);
    } catch {
      // User code has closed it, or execd is gone: nothing can be told any more.
      process.exit(1);
    }
  };

  // Waits until execd has read the frames so far: what is printed next must not overtake them on
  // its other way. An interrupt may end the wait, so the answer to an older question is passed over.
  let asked = 0;
  const keepOrder = () => {
    asked += 1;
    const mark = String(asked % 1e8).padStart(8, '0');
    const answer = Buffer.alloc(mark.length);
    send('Q', mark);
    do {
      if (fs.readSync(frames, answer) === 0) process.exit(0);
    } while (answer.toString() !== mark);
  };

  // Output is written before the call that prints it returns. Node would keep what does not fit
  // into a pipe and write it later, after frames that were sent meanwhile. The streams are made
  // on first use, because making them takes milliseconds.
  for (const name of ['stdout', 'stderr']) {
    const made = Object.getOwnPropertyDescriptor(process, name);
    let stream = null;
    const get = () => {
      if (!stream) {
        stream = made.get.call(process);
        if (stream._handle && stream._handle.setBlocking) stream._handle.setBlocking(true);
      }
      return stream;
    };
    Object.defineProperty(process, name, { ...made, get });
  }

  // Rich results.
  const text = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
  const asText = (value) =>
    Buffer.isBuffer(value) || value instanceof Uint8Array ? Buffer.from(value).toString('base64') : text(value);

  const bundle = (value) => {
    const found = {};
    const custom = value !== null && value !== undefined && value[Symbol.for('Jupyter.display')];
    if (typeof custom === 'function') {
      for (const [mime, part] of Object.entries(custom.call(value))) found[mime] = asText(part);
    }
    if (!('text/plain' in found)) found['text/plain'] = util.inspect(value, { depth: 4, maxArrayLength: 1000 });
    return found;
  };
  const pairs = (found) => Object.entries(found).flat();

  const display = (value, options = {}) => {
    const found = options.raw
      ? Object.fromEntries(Object.entries(value).map(([mime, part]) => [mime, asText(part)]))
      : bundle(value);
    send('D', options.id || '', options.update ? '1' : '', ...pairs(found));
    keepOrder();
  };

  // Errors, without the driver's frames.
  const report = (error) => {
    if (error === null || typeof error !== 'object' || typeof error.stack !== 'string') {
      const shown = util.inspect(error);
      send('E', 'Error', shown, `Uncaught ${shown}`);
      return;
    }
    const name = error.name || 'Error';
    const lines = error.stack.split('\n').filter((line) => !/^\s+at .*(\[eval\]|node:|new Promise \(<anonymous>\))/.test(line));
    send('E', name, String(error.message), ...lines);
  };

  // A cell ends once: by itself, or by the interrupt. Node breaks a loop by terminating the
  // script, and at the very end of one it may also terminate what called it, so the handler of
  // the signal must be able to end the cell alone.
  const end = (cell, tell) => {
    if (current !== cell) return;
    current = null;
    delete globalThis[key];
    tell();
    send('F', count);
  };
  const tellInterrupted = () =>
    send('E', 'KeyboardInterrupt', 'the execution was interrupted', 'KeyboardInterrupt: the execution was interrupted');

  const run = async (code) => {
    count += 1;
    const cell = {};
    current = cell;
    try {
      const script = new vm.Script(code, {
        filename: `<cell ${count}>`,
        importModuleDynamically: vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
      });
      globalThis[key] = script.runInThisContext();
      // The call itself is a script, so that SIGINT breaks a loop in it.
      const value = await call.runInThisContext({ breakOnSigint: true });
      end(cell, () => {
        if (value.length !== 1 || value[0] === undefined) return;
        globalThis._ = value[0];
        send('R', count, ...pairs(bundle(value[0])));
      });
    } catch (error) {
      const isInterrupt = error && error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
      end(cell, () => (isInterrupt ? tellInterrupted() : report(error)));
    }
  };
  const key = Symbol.for('osb.cell');
  const call = new vm.Script("globalThis[Symbol.for('osb.cell')]()", { filename: '[eval]' });

  process.on('SIGINT', () => {
    if (current) end(current, tellInterrupted);
  });
  // What user code left running may fail at any time; that must not end the context.
  const stray = (error) => process.stderr.write(`Uncaught ${util.inspect(error)}\n`);
  process.on('uncaughtException', stray);
  process.on('unhandledRejection', stray);

  globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'));
  globalThis.display = display;
  globalThis.prompt = undefined;
  globalThis.input = (question = '') =>
    new Promise((resolve, reject) => {
      refusePrompt = reject;
      send('I', question, '');
    });

  const receive = (kind, fields) => {
    if (kind === 'X') return void run(fields[0].toString());
    if (kind === 'P') return send('P', fields[0]);
    if (kind === 'C') return current && end(current, tellInterrupted);
    if (kind !== 'Z' || !refusePrompt) return;
    refusePrompt(new Error('this execution has no input; pass data in the code or in a file'));
    refusePrompt = null;
  };

  let pending = Buffer.alloc(0);
  const socket = new net.Socket({ fd: commands, readable: true, writable: false });
  socket.on('data', (data) => {
    pending = pending.length ? Buffer.concat([pending, data]) : data;
    while (pending.length >= 4 && pending.length >= 4 + pending.readUInt32BE(0)) {
      const body = pending.subarray(4, 4 + pending.readUInt32BE(0));
      pending = pending.subarray(4 + body.length);
      const fields = [];
      for (let at = 1; at < body.length; ) {
        const size = body.readUInt32BE(at);
        fields.push(body.subarray(at + 4, at + 4 + size));
        at += 4 + size;
      }
      receive(String.fromCharCode(body[0]), fields);
    }
  });
  socket.on('close', () => process.exit(0));
  send('H', process.version);
})();
