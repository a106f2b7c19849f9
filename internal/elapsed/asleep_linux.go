package elapsed

import (
	"time"

	"golang.org/x/sys/unix"
)

// Asleep returns for how long the machine has been suspended in all since it booted: by how much
// the clock that goes on meanwhile is ahead of the monotonic one, give or take what passes between
// the reading of the two. Where that can't be told it is always 0.
func Asleep() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil ||
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - mono.Nano())
}
