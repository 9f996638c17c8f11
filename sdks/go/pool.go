package osb

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// Failures in a row after which the pool waits before it tries again, as in the other SDKs.
	degradedAfter = 3
	// How long it then waits. There is no event to wait for: the server is busy or away.
	degradedDelay = time.Second

	defaultIdleTimeout       = 24 * time.Hour
	defaultWarmupConcurrency = 8
)

// PoolOptions says what a pool keeps ready, and how.
type PoolOptions struct {
	// Sandbox is what each sandbox has. How long it lives is the pool's affair.
	Sandbox CreateOptions
	// MaxIdle is how many are kept ready.
	MaxIdle int
	// WarmupConcurrency is how many are made at the same time; 0 is 8.
	WarmupConcurrency int
	// IdleTimeout is after which time one that was ready is thrown away; 0 is a day.
	IdleTimeout time.Duration
	// FailWhenEmpty fails with [PoolEmpty] when none is ready, instead of making one for the caller.
	FailWhenEmpty bool
}

// PoolStatus is how a pool stands.
type PoolStatus struct {
	// Idle are ready.
	Idle int
	// Warming are being made.
	Warming int
	// MaxIdle are to be ready.
	MaxIdle int
	// Degraded says that the last attempts to make one failed.
	Degraded bool
}

type idleSandbox struct {
	sandbox *Sandbox
	expiry  *time.Timer
}

// Pool keeps sandboxes ready on the client's side, so that taking one costs one request. The server sees
// nothing but sandboxes being made and ended. It may be used by any number of goroutines.
//
//	pool := osb.NewPool(client, "python:3.12", osb.PoolOptions{MaxIdle: 4})
//	defer pool.Shutdown(ctx)
//	sandbox, err := pool.Acquire(ctx, 10*time.Minute)
type Pool struct {
	client  *Client
	image   string
	options PoolOptions

	mutex       sync.Mutex
	idle        []*idleSandbox
	warming     int
	maxIdle     int
	failures    int
	lastFailure error
	delay       *time.Timer
	isClosed    bool
	// Closed and made anew with every change.
	changed chan struct{}
}

// NewPool begins to keep sandboxes of an image ready; the image is empty when the options name a snapshot or
// a template.
func NewPool(client *Client, image string, options PoolOptions) *Pool {
	if options.WarmupConcurrency <= 0 {
		options.WarmupConcurrency = defaultWarmupConcurrency
	}
	if options.IdleTimeout == 0 {
		options.IdleTimeout = defaultIdleTimeout
	}
	p := &Pool{client: client, image: image, options: options, maxIdle: options.MaxIdle, changed: make(chan struct{})}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.fill()
	return p
}

// Acquire takes a sandbox that is ready; it then lives for so long and belongs to the caller, who closes it.
func (p *Pool) Acquire(ctx context.Context, lifetime time.Duration) (*Sandbox, error) {
	for {
		sandbox, failure, isClosed := p.take()
		if isClosed {
			return nil, poolClosedError()
		}
		if ctx.Err() != nil {
			if sandbox != nil {
				p.discard(sandbox)
			}
			return nil, context.Cause(ctx)
		}
		if sandbox == nil {
			if p.options.FailWhenEmpty {
				return nil, poolEmptyError(failure)
			}
			options := p.options.Sandbox
			options.Lifetime = lifetime
			return create(ctx, p.client, p.image, &options)
		}
		err := sandbox.ready(ctx, 0)
		if err == nil {
			_, err = sandbox.Renew(ctx, lifetime)
		}
		if err == nil {
			return sandbox, nil
		}
		// It died while it waited; the next may not have.
		p.discard(sandbox)
	}
}

// Status is how it stands.
func (p *Pool) Status() PoolStatus {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.status()
}

func (p *Pool) status() PoolStatus {
	return PoolStatus{Idle: len(p.idle), Warming: p.warming, MaxIdle: p.maxIdle, Degraded: p.failures >= degradedAfter}
}

// Resize keeps this many ready from now on; what is too much is ended.
func (p *Pool) Resize(ctx context.Context, maxIdle int) error {
	p.mutex.Lock()
	p.maxIdle = maxIdle
	surplus := min(max(0, len(p.idle)-maxIdle), len(p.idle))
	ended := slices.Clone(p.idle[:surplus])
	p.idle = slices.Clone(p.idle[surplus:])
	p.fill()
	p.tell()
	p.mutex.Unlock()
	return p.end(ctx, ended)
}

// WaitUntilWarm waits until as many are ready as should be, for at most this time, or until making them failed.
func (p *Pool) WaitUntilWarm(ctx context.Context, timeout time.Duration) error {
	limited, cancel := context.WithTimeoutCause(ctx, timeout, timeoutError("warming the pool", timeout))
	defer cancel()
	return p.until(limited, func() (bool, error) {
		switch status := p.status(); {
		case status.Idle >= status.MaxIdle:
			return true, nil
		case status.Degraded:
			return false, poolEmptyError(p.lastFailure)
		case p.isClosed:
			return false, poolClosedError()
		}
		return false, nil
	})
}

// until looks, under the lock, now and after every change.
func (p *Pool) until(ctx context.Context, look func() (bool, error)) error {
	for {
		p.mutex.Lock()
		isDone, err := look()
		changed := p.changed
		p.mutex.Unlock()
		if isDone || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Shutdown stops, and ends every sandbox that is ready.
func (p *Pool) Shutdown(ctx context.Context) error {
	p.mutex.Lock()
	p.isClosed = true
	if p.delay != nil {
		p.delay.Stop()
	}
	p.tell()
	p.mutex.Unlock()
	// What is being made is made, and then ended with the others.
	err := p.until(ctx, func() (bool, error) { return p.warming == 0, nil })
	p.mutex.Lock()
	ended := p.idle
	p.idle = nil
	p.mutex.Unlock()
	if wrong := p.end(ctx, ended); err == nil {
		err = wrong
	}
	return err
}

// take is the one that waited longest, so that all are used; why the last could not be made, where there is none.
func (p *Pool) take() (sandbox *Sandbox, failure error, isClosed bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.isClosed || len(p.idle) == 0 {
		return nil, p.lastFailure, p.isClosed
	}
	first := p.idle[0]
	p.idle = slices.Delete(p.idle, 0, 1)
	first.expiry.Stop()
	p.fill()
	p.tell()
	return first.sandbox, nil, false
}

// fill makes what is missing. It is called under the lock, as all below that say nothing of it.
func (p *Pool) fill() {
	for !p.isClosed && p.delay == nil && p.warming < p.options.WarmupConcurrency && len(p.idle)+p.warming < p.maxIdle {
		p.warming++
		go p.warm()
	}
}

// tell wakes those who wait for a change.
func (p *Pool) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// warm makes one sandbox, without the lock.
func (p *Pool) warm() {
	options := p.options.Sandbox
	// An idle sandbox must outlive its time in the pool by at least one use.
	options.Lifetime = p.options.IdleTimeout + DefaultLifetime
	sandbox, err := create(context.Background(), p.client, p.image, &options)
	if err == nil && !p.put(sandbox) {
		// It counts as being made until it is gone, so that Shutdown waits for that as well.
		p.discard(sandbox)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.warming--
	if err != nil {
		p.failures++
		p.lastFailure = err
		if p.failures >= degradedAfter && p.delay == nil && !p.isClosed {
			p.delay = time.AfterFunc(degradedDelay, p.tryAgain)
		}
	}
	p.fill()
	p.tell()
}

// put keeps one that was made, without the lock; it says no where the pool became smaller meanwhile.
func (p *Pool) put(sandbox *Sandbox) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.failures = 0
	if len(p.idle) >= p.maxIdle {
		return false
	}
	p.keep(sandbox)
	return true
}

// tryAgain ends the wait after failures, without the lock.
func (p *Pool) tryAgain() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.delay = nil
	p.fill()
}

func (p *Pool) keep(sandbox *Sandbox) {
	kept := &idleSandbox{sandbox: sandbox}
	kept.expiry = time.AfterFunc(p.options.IdleTimeout, func() {
		p.mutex.Lock()
		at := slices.Index(p.idle, kept)
		if at >= 0 {
			p.idle = slices.Delete(p.idle, at, at+1)
			p.fill()
			p.tell()
		}
		p.mutex.Unlock()
		if at >= 0 {
			p.discard(sandbox)
		}
	})
	p.idle = append(p.idle, kept)
}

// end ends sandboxes side by side, without the lock.
func (p *Pool) end(ctx context.Context, ended []*idleSandbox) error {
	failed := make(chan error, len(ended))
	for _, each := range ended {
		each.expiry.Stop()
		go func() { failed <- each.sandbox.Kill(ctx) }()
	}
	var err error
	for range ended {
		if wrong := <-failed; err == nil {
			err = wrong
		}
	}
	return err
}

// discard ends a sandbox, without the lock. It ends by itself when this does not work.
func (p *Pool) discard(sandbox *Sandbox) {
	_ = sandbox.Close(context.Background())
}
