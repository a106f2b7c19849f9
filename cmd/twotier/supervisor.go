package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"twotier.dev/twotier/internal/config"
)

// tellWithin bounds how long a supervisor that does not listen can hold up the node.
const tellWithin = time.Second

// tellSupervisor reports a state to the supervisor that started this process, if it wants to know
// (NOTIFY_SOCKET, as systemd with Type=notify): see sd_notify(3).
func (s *server) tellSupervisor(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if err := notify(name, state); err != nil {
		s.log.Warn("the supervisor at NOTIFY_SOCKET can't be told", "state", state, "error", err)
	}
}

// notify sends a state to the socket of a supervisor. The kernel queues few messages, usually ten,
// and blocks the next sender until the supervisor reads: in daemon.SdNotify for ever.
func notify(socket, state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(tellWithin)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}

// reloadingState returns the state "files are being read again". Type=notify-reload wants the time
// with it.
func reloadingState() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return daemon.SdNotifyReloading
	}
	return fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000)
}

// startWatchdog starts runWatchdog, and returns a function that stops it.
func (s *server) startWatchdog() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { s.runWatchdog(ctx) })
	return func() { cancel(); done.Wait() }
}

// runWatchdog reports to the supervisor that the node is alive, twice per interval of
// WATCHDOG_USEC, until ctx is done. A node with a deadlock stops reporting and is restarted; a node
// that is not ready, because Redis is down for example, keeps reporting.
func (s *server) runWatchdog(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("WATCHDOG_USEC can't be used", "error", err)
	}
	if every <= 0 {
		return
	}
	tick := time.NewTicker(max(every/2, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = s.node.Stats() // takes the lock of every partition
			s.tellSupervisor(daemon.SdNotifyWatchdog)
		}
	}
}

// inheritListener returns the listener for the HTTP API that a supervisor has opened for this
// process (LISTEN_FDS, as systemd with a .socket unit), or nil if there is none. It also returns
// the settings with the listener's address in place of --listen, so that rules about addresses
// apply to an inherited one.
func inheritListener(cfg config.Config) (net.Listener, config.Config, error) {
	all, err := activation.Listeners()
	if err != nil || len(all) == 0 {
		return nil, cfg, err
	}
	tcp, ok := all[0].(*net.TCPListener)
	if len(all) > 1 || !ok {
		return nil, cfg, errors.New("LISTEN_FDS: want one socket, which listens for TCP " +
			"(ListenStream=8080); it takes the place of --listen")
	}
	cfg, err = cfg.ListeningOn(tcp.Addr().String())
	if err != nil {
		err = fmt.Errorf("a socket was inherited (LISTEN_FDS): %w", errors.Join(err, tcp.Close()))
	}
	return tcp, cfg, err
}
