// Which folders a cache may use at all, and which files in them it may remove. Kiln marks a folder
// that it has made, or has found empty, with a file; it removes nothing from a folder without one.
#pragma once

#include <filesystem>
#include <string>

namespace kiln::cache {

inline constexpr const char* kMarkerName = ".kiln-cache";

bool is_marked(const std::filesystem::path& root);
bool is_empty_folder(const std::filesystem::path& root);  // but for a volume's lost+found

// Marks `root` if nothing lies in it yet. Returns what failed, or an empty string.
std::string mark_if_empty(const std::filesystem::path& root);

// Why no cache may lie in this folder, as a sentence's tail ("is a home folder"); empty for most.
// `home` is what the environment calls the user's home, or empty.
std::string unfit_for_a_cache(const std::filesystem::path& root, const std::filesystem::path& home);

// Says, as a sentence's tail, that another user created this folder or one above it in a place
// where every user may create folders. Empty where that is not so.
std::string planted(const std::filesystem::path& root);

struct User {
  std::string name, home;
};
User user_of(unsigned id);  // a user without a name is called by the number

// Removes a file from the folder that its path names, and only if that folder is no symbolic link.
bool remove_in_place(const std::filesystem::path& file);

// Sets the permissions of a folder that this user has just made, past the umask. Refuses what has
// taken its place meanwhile. Returns what failed, or an empty string.
std::string set_folder_mode(const std::filesystem::path& folder, unsigned mode);

// Whether the path is a folder itself, and not a link to one.
bool is_real_folder(const std::filesystem::path& path);

}  // namespace kiln::cache
