#pragma once
// The process groups that this process has started and not yet reaped, so that an interrupted program takes them all along.
namespace culprit {

/// Enters the group led by `pid`, a child that is not reaped before `remove_live_child`.
void add_live_child(int pid);
void remove_live_child(int pid);
/// SIGTERM to all groups, SIGKILL after a short grace. From then on `children_ended` holds and nothing should be started any more. For any
/// thread, not for a signal handler.
void end_live_children();
[[nodiscard]] bool children_ended();

}  // namespace culprit
