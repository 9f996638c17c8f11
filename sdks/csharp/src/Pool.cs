// A pool of sandboxes on the client's side: some are kept ready, so that taking one costs one request. The
// server sees nothing but sandboxes being made and ended.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace OpenSandbox
{
    /// <summary>What a pool does when no sandbox is ready.</summary>
    public enum PoolPolicy
    {
        /// <summary>Make one for this caller.</summary>
        Create,

        /// <summary>Fail with a <see cref="PoolEmptyException"/>.</summary>
        Fail,
    }

    /// <summary>What a pool keeps ready, and how.</summary>
    public sealed class PoolOptions
    {
        /// <summary>What each sandbox has. How long it lives is the pool's affair.</summary>
        public CreateOptions Sandbox { get; set; } = new CreateOptions();

        /// <summary>How many are kept ready.</summary>
        public int MaxIdle { get; set; }

        /// <summary>How many are made at the same time.</summary>
        public int WarmupConcurrency { get; set; } = 8;

        /// <summary>One that was ready for longer is thrown away.</summary>
        public TimeSpan IdleTimeout { get; set; } = TimeSpan.FromHours(24);

        /// <summary>What to do when none is ready.</summary>
        public PoolPolicy Policy { get; set; }
    }

    /// <summary>How a pool stands.</summary>
    public sealed class PoolStatus
    {
        internal PoolStatus(int idle, int warming, int maxIdle, bool isDegraded)
        {
            Idle = idle;
            Warming = warming;
            MaxIdle = maxIdle;
            IsDegraded = isDegraded;
        }

        /// <summary>Ready.</summary>
        public int Idle { get; }

        /// <summary>Being made.</summary>
        public int Warming { get; }

        /// <summary>How many are to be ready.</summary>
        public int MaxIdle { get; }

        /// <summary>The last attempts to make one failed.</summary>
        public bool IsDegraded { get; }
    }

    /// <summary>Sandboxes that are kept ready. <see cref="ShutdownAsync"/> ends those that are, as does leaving an
    /// <c>await using</c> block.</summary>
    public sealed class Pool : IAsyncDisposable
    {
        /// <summary>Failures in a row after which the pool waits before it tries again, as in the other SDKs.</summary>
        private const int DegradedAfter = 3;

        /// <summary>How long it then waits. There is no event to wait for: the server is busy or away.</summary>
        private static readonly TimeSpan DegradedDelay = TimeSpan.FromSeconds(1);

        private readonly object _lock = new object();
        private readonly Client _client;
        private readonly SandboxSource _source;
        private readonly PoolOptions _options;
        private readonly List<Idle> _idle = new List<Idle>();
        private readonly HashSet<Task> _warming = new HashSet<Task>();
        private readonly CancellationTokenSource _closing = new CancellationTokenSource();
        private TaskCompletionSource<bool> _changed = Signal();
        private int _maxIdle;
        private int _failures;
        private Exception? _lastFailure;
        private bool _isDelayed;
        private bool _isClosed;

        /// <summary>Begins to keep sandboxes ready.</summary>
        /// <param name="client">By which they are made.</param>
        /// <param name="source">What they start from.</param>
        /// <param name="options">How many, and how.</param>
        public Pool(Client client, SandboxSource source, PoolOptions options)
        {
            _client = client;
            _source = source;
            _options = options;
            _maxIdle = options.MaxIdle;
            Fill();
        }

        /// <summary>How it stands.</summary>
        public PoolStatus Status
        {
            get
            {
                lock (_lock) return new PoolStatus(_idle.Count, _warming.Count, _maxIdle, _failures >= DegradedAfter);
            }
        }

        /// <summary>Takes a sandbox that is ready; it then lives for so long and belongs to the caller.</summary>
        /// <param name="lifetime">How long.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public async Task<Sandbox> AcquireAsync(TimeSpan lifetime, CancellationToken cancellationToken = default)
        {
            while (true)
            {
                cancellationToken.ThrowIfCancellationRequested();
                var sandbox = Take();
                if (sandbox == null) break;
                try
                {
                    await Ready.WaitAsync(sandbox, _options.Sandbox, cancellationToken).ConfigureAwait(false);
                    await sandbox.RenewAsync(lifetime, cancellationToken).ConfigureAwait(false);
                    return sandbox;
                }
                catch (Exception error)
                {
                    // It died while it waited; the next may not have.
                    await sandbox.TryKillAsync().ConfigureAwait(false);
                    if (!(error is OpenSandboxException)) throw;
                }
            }
            if (_options.Policy == PoolPolicy.Fail) throw new PoolEmptyException(_lastFailure);
            return await _client.CreateAsync(_source, _options.Sandbox.WithLifetime(lifetime), cancellationToken).ConfigureAwait(false);
        }

        /// <summary>Keeps this many ready from now on; what is too much is ended.</summary>
        /// <param name="maxIdle">How many.</param>
        public async Task ResizeAsync(int maxIdle)
        {
            List<Idle> surplus;
            lock (_lock)
            {
                _maxIdle = maxIdle;
                surplus = _idle.GetRange(0, Math.Max(0, _idle.Count - Math.Max(0, maxIdle)));
                _idle.RemoveRange(0, surplus.Count);
            }
            Fill();
            Tell();
            await Task.WhenAll(surplus.Select(idle => idle.EndAsync())).ConfigureAwait(false);
        }

        /// <summary>Waits until as many are ready as should be, or making them failed.</summary>
        /// <param name="timeout">How long that may take.</param>
        /// <param name="cancellationToken">Stops waiting.</param>
        public async Task WaitUntilWarmAsync(TimeSpan timeout, CancellationToken cancellationToken = default)
        {
            using var limit = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
            Deadline.Start(limit, timeout);
            var late = Signal();
            using var registration = limit.Token.Register(() => late.TrySetResult(true));
            while (true)
            {
                Task changed;
                lock (_lock)
                {
                    if (_idle.Count >= _maxIdle) return;
                    if (_isClosed) throw new PoolClosedException();
                    if (_failures >= DegradedAfter) throw new PoolEmptyException(_lastFailure);
                    changed = _changed.Task;
                }
                await Task.WhenAny(changed, late.Task).ConfigureAwait(false);
                cancellationToken.ThrowIfCancellationRequested();
                if (limit.IsCancellationRequested) throw new TimedOutException("warming the pool", timeout);
            }
        }

        /// <summary>Stops, and ends every sandbox that is ready.</summary>
        public async Task ShutdownAsync()
        {
            Task[] warming;
            lock (_lock)
            {
                if (!_isClosed) _closing.Cancel();
                _isClosed = true;
                warming = _warming.ToArray();
            }
            // What is being made is made, and then ended with the others.
            await Task.WhenAll(warming).ConfigureAwait(false);
            List<Idle> all;
            lock (_lock)
            {
                all = _idle.ToList();
                _idle.Clear();
            }
            await Task.WhenAll(all.Select(idle => idle.EndAsync())).ConfigureAwait(false);
            Tell();
        }

        /// <summary>Stops, and ends every sandbox that is ready.</summary>
        public async ValueTask DisposeAsync() => await ShutdownAsync().ConfigureAwait(false);

        private static TaskCompletionSource<bool> Signal() =>
            new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);

        /// <summary>The one that waited longest, so that all are used.</summary>
        private Sandbox? Take()
        {
            Idle? idle = null;
            lock (_lock)
            {
                if (_isClosed) throw new PoolClosedException();
                if (_idle.Count > 0)
                {
                    idle = _idle[0];
                    _idle.RemoveAt(0);
                }
            }
            Fill();
            return idle?.Take();
        }

        /// <summary>Makes what is missing.</summary>
        private void Fill()
        {
            lock (_lock)
            {
                var most = Math.Max(1, _options.WarmupConcurrency);
                while (!_isClosed && !_isDelayed && _warming.Count < most && _idle.Count + _warming.Count < _maxIdle)
                {
                    // On another thread, so that it cannot be over before it is among those that are being made.
                    var warming = Task.Run(WarmAsync);
                    _warming.Add(warming);
                    _ = AfterAsync(warming);
                }
            }
        }

        private async Task AfterAsync(Task warming)
        {
            await warming.ConfigureAwait(false);
            lock (_lock) _warming.Remove(warming);
            Tell();
            Fill();
        }

        private async Task WarmAsync()
        {
            // An idle sandbox must outlive its time in the pool by at least one use.
            var options = _options.Sandbox.WithLifetime(_options.IdleTimeout + CreateOptions.DefaultLifetime);
            try
            {
                var sandbox = await _client.CreateAsync(_source, options).ConfigureAwait(false);
                lock (_lock)
                {
                    _failures = 0;
                    // One that is closed ends it with the others.
                    if (_isClosed || _idle.Count < _maxIdle)
                    {
                        _idle.Add(new Idle(sandbox, _options.IdleTimeout, Expire));
                        return;
                    }
                }
                // Nobody wants it any more.
                await sandbox.TryKillAsync().ConfigureAwait(false);
            }
            catch (Exception error)
            {
                // Whatever it is, who waits is told of it.
                var isLong = false;
                lock (_lock)
                {
                    _lastFailure = error;
                    isLong = ++_failures >= DegradedAfter && !_isDelayed && !_isClosed;
                    _isDelayed |= isLong;
                }
                if (isLong) _ = DelayAsync();
            }
        }

        private async Task DelayAsync()
        {
            try
            {
                await Task.Delay(DegradedDelay, _closing.Token).ConfigureAwait(false);
            }
            catch (OperationCanceledException)
            {
                return;
            }
            lock (_lock) _isDelayed = false;
            Fill();
        }

        private void Expire(Idle idle)
        {
            lock (_lock)
            {
                if (!_idle.Remove(idle)) return;
            }
            _ = idle.EndAsync();
            Fill();
        }

        private void Tell()
        {
            lock (_lock)
            {
                _changed.TrySetResult(true);
                _changed = Signal();
            }
        }

        /// <summary>One that is ready.</summary>
        private sealed class Idle
        {
            private readonly Sandbox _sandbox;
            private readonly Timer _expiry;

            internal Idle(Sandbox sandbox, TimeSpan timeout, Action<Idle> expire)
            {
                _sandbox = sandbox;
                _expiry = new Timer(_ => expire(this), null, Deadline.Bounded(timeout), Timeout.InfiniteTimeSpan);
            }

            internal Sandbox Take()
            {
                _expiry.Dispose();
                return _sandbox;
            }

            internal Task EndAsync() => Take().TryKillAsync();
        }
    }
}
